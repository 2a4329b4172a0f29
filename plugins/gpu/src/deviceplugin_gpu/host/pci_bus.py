"""NVIDIA's GPUs on the PCI bus, whatever NVML says of them."""

from pathlib import Path
from typing import Final

NVIDIA: Final = "nvidia"
"""The driver under which NVML finds GPUs."""
_VENDOR: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""The PCI classes of GPUs; bridges and the sound of NVIDIA's have others."""


def cards(sys: Path) -> dict[str, str]:
    """Return the kernel's driver of each GPU by PCI address, in order; empty for none."""
    try:
        entries = sorted((sys / "bus/pci/devices").iterdir())
    except OSError:
        return {}
    return {card.name: _driver(card) for card in entries if _is_gpu(card)}


def _is_gpu(card: Path) -> bool:
    return _text(card / "vendor") == _VENDOR and _text(card / "class").startswith(_DISPLAY)


def _driver(card: Path) -> str:
    link = card / "driver"
    return link.resolve().name if link.is_symlink() else ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
