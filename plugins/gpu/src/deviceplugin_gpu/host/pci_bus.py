"""NVIDIA's GPUs on the PCI bus, whether NVML lists them or not, but for those that VFIO has."""

from pathlib import Path
from typing import Final

from deviceplugin.kit import pci, vfio
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs

NVIDIA: Final = "nvidia"
"""The kernel driver whose GPUs NVML lists."""
_VENDOR: Final = 0x10DE
_DISPLAY: Final = "03"
"""The PCI classes of GPUs. NVIDIA's bridges and sound devices have others."""


def cards(sys: Path) -> dict[str, str]:
    """Return the kernel driver of each GPU by PCI address, in order. Empty means no driver.

    Those that VFIO has are reserved for virtual machines and left out.
    """
    found = pci.functions(Tree(Sysfs(sys)))
    return {card.address: card.driver for card in found if _is_gpu(card)}


def _is_gpu(card: pci.Function) -> bool:
    is_nvidia = card.vendor == _VENDOR and card.pci_class.startswith(_DISPLAY)
    return is_nvidia and not vfio.has(card.device)
