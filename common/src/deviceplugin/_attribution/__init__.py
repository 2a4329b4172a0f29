"""Which pods hold which devices, and when they have given them back."""
