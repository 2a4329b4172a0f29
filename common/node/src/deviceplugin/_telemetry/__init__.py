"""Metrics, events and log lines."""
