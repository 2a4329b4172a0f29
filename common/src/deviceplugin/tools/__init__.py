"""The commands of ``deviceplugin``, one a package."""
