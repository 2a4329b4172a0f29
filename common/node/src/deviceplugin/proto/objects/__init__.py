"""Objects of Kubernetes in its binary format, for the simulated API server."""
