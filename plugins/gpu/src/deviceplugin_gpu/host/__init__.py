"""What is read and written on the node itself."""
