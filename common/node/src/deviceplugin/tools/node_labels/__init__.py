"""``deviceplugin node-labels``: keeps the labels of this node in a file, for a plugin beside it."""
