"""The forms in which the result is written, and the way to it."""
