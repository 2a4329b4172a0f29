"""``deviceplugin new``: the start of a plugin, with its test, image and deployment."""
