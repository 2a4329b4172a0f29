"""gRPC as plugins see it from the kubelet, which is a Go program."""
