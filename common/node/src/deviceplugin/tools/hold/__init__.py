"""``deviceplugin hold`` and ``release``: keep pods off a device, and have the plugin let go of it."""
