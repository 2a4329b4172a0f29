"""The commands of ``deviceplugin`` for authors of plugins."""
