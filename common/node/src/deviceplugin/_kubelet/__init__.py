"""The device-plugin protocol: an endpoint for each resource, with its socket and its service."""
