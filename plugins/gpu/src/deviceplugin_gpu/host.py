"""The node's file systems: where they are, links and names in them, and GPUs on the PCI bus."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.kit import files, pci, vfio
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.health import absence
from deviceplugin.kit.sysfs import Sysfs


@dataclass(frozen=True, slots=True)
class Roots:
    """Where this plugin sees the kernel's file systems. Tests use other directories."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    etc: Path = Path("/etc")
    mps: Path = Path("/mps")
    """Where mps-root of the host is mounted for this plugin."""


def resolve(root: Path, path: str) -> str | None:
    """Return what ``path`` below ``root`` resolves to, relative to ``root``.

    A link to ``/x`` resolves to ``x`` below ``root``, and no link leads out of ``root``. None if
    there are too many links, or one cannot be read.
    """
    try:
        found = files.within(root, path).relative_to(root)
    except OSError:
        return None
    return "/".join(found.parts)


def text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def is_tegra(roots: Roots) -> bool:
    """Return whether this is a Tegra system, such as a Jetson."""
    family = text(roots.sys / "devices/soc0/family").lower()
    return not absence(roots.etc / "nv_tegra_release") or family.startswith("tegra")


def matches(folder: Path, pattern: str) -> list[Path]:
    """Return the paths below a directory that match, in order; none if it cannot be listed."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def folders(root: Path, pattern: str) -> list[Path]:
    """Return the directories that a pattern stands for below ``root``, whatever links lead there.

    A pattern with ``*`` follows links as the kernel does, any other as ``resolve`` does.
    """
    if "*" in pattern:
        return matches(root, pattern)
    found = resolve(root, pattern)
    return [root / found] if found else []


NVIDIA: Final = "nvidia"
"""The kernel driver whose GPUs NVML lists."""
_VENDOR: Final = 0x10DE
_THOR: Final = 0x2B00
"""The only integrated GPU that is on the PCI bus."""
_DISPLAY: Final = "03"
"""The PCI classes of GPUs. NVIDIA's bridges and sound devices have others."""


def cards(sys: Path) -> dict[str, str]:
    """Return the kernel driver of each GPU by PCI address, in order. Empty means no driver."""
    return {card.address: card.driver for card in _gpus(sys)}


def has_discrete(sys: Path) -> bool:
    """Return whether the driver has a GPU on the PCI bus that is not a part of the processor."""
    return any(card.driver == NVIDIA and card.product != _THOR for card in _gpus(sys))


def _gpus(sys: Path) -> Iterator[pci.Function]:
    for card in pci.functions(Tree(Sysfs(sys))):
        is_gpu = card.vendor == _VENDOR and card.pci_class.startswith(_DISPLAY)
        if is_gpu and not vfio.is_reserved(card.device):
            yield card


def served(sys: Path) -> list[str]:
    """Return the PCI addresses of the GPUs that NVML lists, in its order."""
    return [address for address, driver in cards(sys).items() if driver == NVIDIA]
