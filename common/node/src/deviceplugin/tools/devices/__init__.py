"""Lists a node's devices and their holders: ``deviceplugin devices``."""

from deviceplugin.tools.devices._cli import main
from deviceplugin.tools.devices._inventory import FORMAT, Device, Holder, Inventory

__all__ = ["FORMAT", "Device", "Holder", "Inventory", "main"]
