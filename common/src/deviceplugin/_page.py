"""The inventory page."""
