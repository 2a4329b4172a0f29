"""``accept``: a plugin's devices are tried on a machine that has them, without a cluster."""
