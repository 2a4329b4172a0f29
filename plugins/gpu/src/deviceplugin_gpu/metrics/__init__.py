"""What Prometheus is told of each GPU."""
