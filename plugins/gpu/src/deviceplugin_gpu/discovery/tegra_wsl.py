"""Systems whose GPUs NVML does not list: Tegra, the Windows Subsystem for Linux, and none."""

from pathlib import Path
from typing import Final

from deviceplugin_gpu.host import pci_bus
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
    if strategy == "auto" and (roots.dev / _WSL_NODE).exists():
        return Snapshot((Gpu(0, WSL, name="WSL"),))
    return None


def is_tegra(roots: Roots) -> bool:
    """Return whether this is a Tegra system, such as a Jetson."""
    if (roots.etc / "nv_tegra_release").exists():
        return True
    return _text(roots.sys / "devices/soc0/family").lower() == TEGRA


def has_traces(roots: Roots) -> bool:
    """Return whether there is NVIDIA hardware that no virtual machine has, or a driver for it."""
    if (roots.proc / "driver/nvidia").exists() or any(roots.dev.glob("nvidia*")):
        return True
    return bool(pci_bus.cards(roots.sys))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
