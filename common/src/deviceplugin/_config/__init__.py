"""Settings, and where they are read from."""
