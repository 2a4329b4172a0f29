"""What the API server makes of objects, and what is wrong with them, in its words."""
