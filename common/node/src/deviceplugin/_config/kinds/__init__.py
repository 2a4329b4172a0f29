"""Kinds of values: how each is read and checked, and its JSON Schema."""
