"""Waits until nobody holds devices through a protocol: ``deviceplugin drain``."""
