"""Whether each GPU is well: XIDs, what they mean, and what is remembered of them."""
