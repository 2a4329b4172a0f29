"""What the GPU plugin can be told, and the file that tells it."""
