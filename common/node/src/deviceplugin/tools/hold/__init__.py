"""``deviceplugin hold`` and ``release``: keep pods off a device, and have it let go of."""
