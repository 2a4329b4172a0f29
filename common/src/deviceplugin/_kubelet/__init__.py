"""The device-plugin protocol: one endpoint a resource, its socket and its service."""
