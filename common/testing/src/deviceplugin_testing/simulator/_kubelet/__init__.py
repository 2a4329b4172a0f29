"""A kubelet, as tests and tools have it, and one process of it."""
