"""``generic-device-plugin explain``: entries of a configuration for this machine's devices."""
