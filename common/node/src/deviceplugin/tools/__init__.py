"""The commands of ``deviceplugin``, a package for each."""
