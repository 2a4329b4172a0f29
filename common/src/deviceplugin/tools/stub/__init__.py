"""``deviceplugin stub``: a plugin that does what it is told."""
