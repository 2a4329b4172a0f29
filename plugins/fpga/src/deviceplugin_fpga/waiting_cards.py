"""FPGAs on the PCI bus that have no driver."""

from typing import Final

from deviceplugin.kit import pci
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs

_INTEL: Final = 0x8086
_ACCELERATOR: Final = "120000"
_MODELS: Final = frozenset({0x09C4, 0x0B2B, 0x0B30, 0xBCBD, 0xBCC0, 0xBCCE})
"""PCI devices of the two drivers. Other accelerators of the same class are not FPGAs."""


def waiting_cards(sysfs: Sysfs) -> list[str]:
    """Return the PCI addresses of FPGAs without a driver."""
    cards = pci.functions(Tree(sysfs))
    return [card.address for card in cards if _is_fpga(card) and not card.driver]


def _is_fpga(card: pci.Function) -> bool:
    return (card.vendor, card.pci_class) == (_INTEL, _ACCELERATOR) and card.product in _MODELS
