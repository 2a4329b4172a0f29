"""MIG devices that are made for a claim, and removed with it."""
