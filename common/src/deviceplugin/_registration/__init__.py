"""The two ways to be registered with the kubelet."""
