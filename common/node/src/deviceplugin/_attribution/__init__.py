"""Which pods hold which devices, and when pods have released them."""
