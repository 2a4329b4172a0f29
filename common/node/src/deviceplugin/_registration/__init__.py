"""The two ways to register with the kubelet."""
