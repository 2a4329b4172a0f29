"""NVIDIA's GPUs on the PCI bus, whatever NVML says of them."""

from pathlib import Path
from typing import Final

from deviceplugin.kit import pci
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs

NVIDIA: Final = "nvidia"
"""The driver under which NVML finds GPUs."""
_VENDOR: Final = 0x10DE
_DISPLAY: Final = "03"
"""The PCI classes of GPUs; bridges and the sound of NVIDIA's have others."""


def cards(sys: Path) -> dict[str, str]:
    """Return the kernel's driver of each GPU by PCI address, in order; empty for none."""
    found = pci.functions(Tree(Sysfs(sys)))
    return {card.address: card.driver for card in found if _is_gpu(card)}


def _is_gpu(card: pci.Function) -> bool:
    return card.vendor == _VENDOR and card.pci_class.startswith(_DISPLAY)
