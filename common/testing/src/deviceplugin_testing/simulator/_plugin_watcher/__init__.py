"""The kubelet's plugin watcher, which finds plugins by their sockets."""
