"""The kubelet's plugin watcher API v1: messages (generated)."""
