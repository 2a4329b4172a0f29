"""What the operator reads from and writes to the API server."""
