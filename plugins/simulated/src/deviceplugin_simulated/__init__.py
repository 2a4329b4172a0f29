"""The simulated device plugin."""
