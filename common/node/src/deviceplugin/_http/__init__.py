"""Metrics, probes and the inventory over HTTP; nothing on the device path depends on it."""
