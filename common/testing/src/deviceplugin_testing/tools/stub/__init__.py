"""``deviceplugin stub``: a plugin that is controlled by commands."""
