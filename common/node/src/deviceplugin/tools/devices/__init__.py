"""Lists a node's devices and their holders: ``deviceplugin devices``."""

from deviceplugin.tools.devices._cli import main
from deviceplugin.tools.devices._inventory import FORMAT, Holder, Inventory, NodeDevice

__all__ = ["FORMAT", "Holder", "Inventory", "NodeDevice", "main"]
