"""The DRA protocol: a driver for the node, with its claims and its ResourceSlices."""
