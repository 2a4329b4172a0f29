"""A GPU, by what PCI and its driver say: who it is, where it is, and how it is divided."""

import errno
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.kit import drm, pci
from deviceplugin.kit.hardware import Device
from deviceplugin.kit.sysfs import OddError, Sysfs, UnreadableError, shown

DRIVER: Final = "amdgpu"
VENDOR: Final = 0x1002
_DISPLAYS: Final = ("03", "12")
"""PCI classes of GPUs; their bridges and their sound have others."""
_MODES: Final = {"compute": re.compile("[a-z]px"), "memory": re.compile("nps[0-9]{1,2}")}
WHOLE: Final = "spx"


@dataclass(frozen=True, slots=True)
class Style:
    """How a GPU is divided, by the kernel's names in lower case; empty on one that cannot be."""

    compute: str = ""
    memory: str = ""

    def __str__(self) -> str:
        return "_".join(filter(None, (self.compute, self.memory)))

    @property
    def is_whole(self) -> bool:
        """Whether the GPU is one device."""
        return self.compute in ("", WHOLE)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that the driver has."""

    address: str
    folder: Path
    minor: int | None
    """Of its render node, which is also that of its first partition."""
    identity: int
    """Another one each time that the driver is bound: its nodes are made anew."""
    numa: int | None
    product: str
    """Model by its PCI number, 4 hex digits."""
    name: str
    memory: int
    """Bytes; 0 if not known."""
    style: Style
    in_reset: str
    """Why the style cannot be read now, and is the last one; empty if it can."""
    can_divide: tuple[bool, bool]
    """Whether compute units and memory can be divided."""


def read(sysfs: Sysfs, card: pci.Function, before: Style | None) -> Gpu:
    """Return a GPU, divided as ``before`` where the kernel does not say how now.

    Raises:
        SysfsError: It cannot be known how it is divided.
    """
    folder, in_reset = Path(card.device.path), ""
    try:
        style = _style(sysfs, folder)
    except UnreadableError as error:
        if before is None:
            raise
        style = before
        in_reset = "in reset" if error.errno == errno.EPERM else str(error)
    memory = card.device.attribute("mem_info_vram_total")
    return Gpu(
        card.address,
        folder,
        drm.nodes(sysfs, folder).minor,
        identity(folder),
        card.numa_node,
        f"{card.product or 0:04x}",
        card.device.attribute("product_name"),
        int(memory) if re.fullmatch("[0-9]{1,20}", memory) else 0,
        style,
        in_reset,
        _can_divide(card.device),
    )


def is_gpu(card: pci.Function) -> bool:
    """Return whether a PCI function is a GPU of AMD's, whoever drives it."""
    return card.vendor == VENDOR and card.pci_class.startswith(_DISPLAYS)


def _style(sysfs: Sysfs, folder: Path) -> Style:
    """Return how a GPU is divided.

    Raises:
        SysfsError: The kernel does not say, or says what is not known.
    """
    modes: dict[str, str] = {}
    for what, pattern in _MODES.items():
        path = folder / f"current_{what}_partition"
        text = modes[what] = sysfs.read(path, "").lower()
        if text and not pattern.fullmatch(text):
            raise OddError(path, f"{shown(text)} is not a mode")
    return Style(**modes)


def _can_divide(device: Device) -> tuple[bool, bool]:
    compute, memory = (
        "," in device.attribute(f"available_{what}_partition") for what in ("compute", "memory")
    )
    return compute, memory


def identity(folder: Path) -> int:
    """Return a number that a GPU has only as long as the driver is bound to it; 0 if not known."""
    try:
        return (folder / "drm").stat().st_ino
    except OSError:
        return 0
