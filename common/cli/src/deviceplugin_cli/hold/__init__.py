"""``kubectl deviceplugin hold`` and ``release``."""
