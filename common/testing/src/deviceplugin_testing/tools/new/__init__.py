"""``deviceplugin new``: create a plugin to start from, with its test, image and deployment."""
