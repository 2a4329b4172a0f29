"""Records what plugins read of this machine's devices: ``deviceplugin record``."""
