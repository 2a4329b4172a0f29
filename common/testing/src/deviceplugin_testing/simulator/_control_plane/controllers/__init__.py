"""The controllers of claims and of device taints, and the garbage collector."""
