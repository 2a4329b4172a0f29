"""Settings, and the places that they are read from."""
