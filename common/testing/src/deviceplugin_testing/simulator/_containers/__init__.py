"""Pod workers and the container runtime, as far as devices are concerned."""
