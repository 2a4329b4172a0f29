"""Plugins and drivers whose answers can all be set, for tests of a kubelet."""
