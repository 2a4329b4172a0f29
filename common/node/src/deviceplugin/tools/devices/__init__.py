"""Lists a node's devices and their holders: ``deviceplugin devices``."""
