"""A node of a simulated cluster: a kubelet that runs the pods bound to it."""
