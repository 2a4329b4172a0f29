"""What PCI and the driver say of a GPU: its identity, its place, and how it is divided."""

import errno
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.kit import drm, pci
from deviceplugin.kit.sysfs import OddError, Sysfs, UnreadableError, shown
from deviceplugin_amd.kfd import number

DRIVER: Final = "amdgpu"
VENDOR: Final = 0x1002
_DISPLAYS: Final = ("03", "12")
"""PCI classes of GPUs; their bridges and audio functions have others."""
_MODES: Final = {"compute": re.compile("[a-z]px"), "memory": re.compile("nps[0-9]{1,2}")}
WHOLE: Final = "spx"


@dataclass(frozen=True, slots=True)
class Style:
    """How a GPU is divided: the kernel's names in lower case. Empty if it cannot be divided."""

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
    """A GPU that the driver is bound to."""

    address: str
    folder: Path
    nodes: drm.Nodes
    """The device nodes of its DRM device."""
    identity: int
    """Changes each time the driver is bound, which makes new DRM devices."""
    numa: int | None
    product: str
    """PCI device id, 4 hex digits."""
    name: str
    memory: int
    """Bytes; 0 if not known."""
    style: Style
    in_reset: str
    """Why ``style`` is from an earlier snapshot; empty if it is not."""
    can_divide: tuple[bool, bool]
    """Whether compute units can be divided, and whether memory can."""
    modes: tuple[str, ...]
    """The compute modes that the driver offers; newer kernels leave out what memory forbids."""

    @property
    def minor(self) -> int | None:
        """Number of its render node, which is also that of its first partition."""
        return self.nodes.minor

    @property
    def names(self) -> tuple[str, str, str]:
        """What settings can choose it by."""
        return self.address, self.product, self.name


def names(card: pci.Function) -> tuple[str, str, str]:
    """Return what settings can choose a GPU by, whatever its driver."""
    product = f"{card.product or 0:04x}"
    return card.address, product, card.device.attribute("product_name")


def read(sysfs: Sysfs, card: pci.Function, before: Style | None) -> Gpu:
    """Return a GPU, with the style ``before`` if the kernel is silent; SysfsError without any."""
    folder, in_reset = Path(card.device.path), ""
    try:
        style = _style(sysfs, folder)
    except UnreadableError as error:
        if before is None:
            raise
        style = before
        in_reset = "in reset" if error.errno == errno.EPERM else str(error)
    address, product, name = names(card)
    compute, memory = (
        "," in card.device.attribute(f"available_{what}_partition") for what in _MODES
    )
    return Gpu(
        address=address,
        folder=folder,
        nodes=drm.nodes(sysfs, folder),
        identity=drm.binding(folder),
        numa=card.numa_node,
        product=product,
        name=name,
        memory=number(card.device.attribute("mem_info_vram_total")),
        style=style,
        in_reset=in_reset,
        can_divide=(compute, memory),
        modes=_offered(card.device.attribute("available_compute_partition")),
    )


def is_gpu(card: pci.Function) -> bool:
    """Return whether a PCI function is an AMD GPU, whatever its driver."""
    return card.vendor == VENDOR and card.pci_class.startswith(_DISPLAYS)


def _offered(text: str) -> tuple[str, ...]:
    names = (name.strip() for name in text.lower().split(","))
    return tuple(name for name in names if _MODES["compute"].fullmatch(name))


def _style(sysfs: Sysfs, folder: Path) -> Style:
    """Return how a GPU is divided; SysfsError if the kernel does not say, or names another mode."""
    modes: dict[str, str] = {}
    for what, pattern in _MODES.items():
        path = folder / f"current_{what}_partition"
        text = modes[what] = sysfs.read(path, "").lower()
        if text and not pattern.fullmatch(text):
            raise OddError(path, f"{shown(text)} is not a mode")
    return Style(**modes)
