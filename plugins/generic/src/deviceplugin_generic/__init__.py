"""The generic device plugin."""
