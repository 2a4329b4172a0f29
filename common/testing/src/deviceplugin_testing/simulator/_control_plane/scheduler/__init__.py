"""The scheduler, as far as devices are concerned."""
