"""Whether each GPU is healthy: XIDs, what they mean, and their history."""
