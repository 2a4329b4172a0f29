"""A simulated cluster: an API server over HTTP, a scheduler and the controllers of claims."""
