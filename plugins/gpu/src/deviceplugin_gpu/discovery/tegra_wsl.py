"""Systems whose GPUs NVML does not list: Tegra, the Windows Subsystem for Linux, and none."""

from pathlib import Path
from typing import Final

from deviceplugin.kit.health import absence
from deviceplugin_gpu.host import links, pci_bus
from deviceplugin_gpu.host.roots import Roots
from deviceplugin_gpu.snapshot import WSL, Gpu, Snapshot

TEGRA: Final = "tegra"
_WSL_NODE: Final = "dxg"


def without_nvml(roots: Roots, strategy: str, *, missing: bool) -> Snapshot | None:
    """Return the GPU of a system that is not read through NVML, or None.

    ``strategy`` is the setting device-discovery-strategy. ``missing`` is whether there is no NVML
    library: only then does ``auto`` recognize a Tegra system.
    """
    if strategy == TEGRA or (missing and strategy == "auto" and is_tegra(roots)):
        return Snapshot((Gpu(0, TEGRA, name="Tegra"),))
    if strategy == "auto" and not absence(roots.dev / _WSL_NODE):
        return Snapshot((Gpu(0, WSL, name="WSL"),))
    return None


def is_tegra(roots: Roots) -> bool:
    """Return whether this is a Tegra system, such as a Jetson."""
    if not absence(roots.etc / "nv_tegra_release"):
        return True
    return _text(roots.sys / "devices/soc0/family").lower() == TEGRA


def has_traces(roots: Roots) -> bool:
    """Return whether there is NVIDIA hardware that no virtual machine has, or a driver for it."""
    if not absence(roots.proc / "driver/nvidia") or links.matches(roots.dev, "nvidia*"):
        return True
    return bool(pci_bus.cards(roots.sys))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
