"""The kubelet's pod resources API v1: messages (generated)."""
