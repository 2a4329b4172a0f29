"""One object, from what it asks for to its status."""
