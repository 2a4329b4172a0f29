"""Prometheus metrics of each GPU."""
