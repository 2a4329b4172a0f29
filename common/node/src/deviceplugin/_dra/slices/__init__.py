"""ResourceSlices: what the driver offers, and how the API server gets it."""
