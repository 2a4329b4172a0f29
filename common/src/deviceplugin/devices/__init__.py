"""Lists a node's devices and who holds them: ``deviceplugin devices``."""

from deviceplugin.devices._cli import main
from deviceplugin.devices._inventory import Device, Holder, Inventory
from deviceplugin.devices._report import FORMAT

__all__ = ["FORMAT", "Device", "Holder", "Inventory", "main"]
