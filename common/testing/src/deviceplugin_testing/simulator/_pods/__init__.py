"""Pods and their claims, from manifests and as tests write them."""
