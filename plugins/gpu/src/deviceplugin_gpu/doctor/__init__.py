"""What ``deviceplugin doctor`` checks for this plugin."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from deviceplugin.checks import Finding, Hardware, Need, Node, ok
from deviceplugin_gpu import host
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.doctor import cuda_pods
from deviceplugin_gpu.nvml.library import DIRECTORIES, MISSING, SONAME, Library, candidates

_ELSEWHERE: Final = ("run/nvidia/driver", "usr/local/nvidia")
"""Roots of drivers that come as a container or with an image of the node."""


def look(node: Node) -> Iterable[Finding]:
    """NVIDIA GPUs: driver, device files, libraries, and whether a CUDA pod would run."""
    if node.exists("dev/dxg"):
        gpus: Iterable[Finding] = [ok(_GPUS.what, "/dev/dxg exists: Windows has the driver")]
    elif cuda_pods.is_integrated(node) and not host.cards(node.at("sys")):
        gpus = [ok(_GPUS.what, "a Tegra system: its GPU is integrated, and a pod gets it as 0")]
    else:
        gpus = _GPUS.look(node)
    return [*gpus, *cuda_pods.look(node)]


def _missing_library(node: Node) -> str:
    """Return where the plugin searched for its library in vain; empty if it was found."""
    mounted = GpuSettings().driver_root_ctr_path
    library = Library(node.at(mounted))
    if node.root == Path("/"):
        if library.load() is not None:
            return ""
        refused = [f"; {why}" for why in library.attempts.values() if why != MISSING]
    else:  # this machine's linker knows nothing of that node's libraries
        if _is_below(library.root) or _is_below(node.root):
            return ""
        refused = []
    places = f"in {', '.join(DIRECTORIES)} below {mounted}, then where the dynamic linker does"
    return "".join([places, *refused, *_stray(node, mounted)])


def _is_below(root: Path) -> bool:
    return any(candidates(root, folder) for folder in DIRECTORIES)


def _stray(node: Node, mounted: Path) -> Iterator[str]:
    for root in _ELSEWHERE:
        if _is_below(node.at(root)):
            yield f"; there is one below /{root}: mount that at {mounted}"


_GPUS: Final = Hardware(
    plugin="gpu",
    what="NVIDIA GPUs",
    vendor="0x10de",
    pci_class="0x03",
    signs=("sys/module/nvidia", "proc/driver/nvidia", "dev/nvidiactl"),
    rivals=("nouveau", "*vfio_pci"),
    needs=(
        Need(
            what="kernel driver nvidia",
            any_of=("sys/module/nvidia", "proc/driver/nvidia/version"),
            means="the GPUs cannot be used, and the plugin advertises 0 GPUs until it is loaded.",
            do="install the NVIDIA driver and modprobe nvidia; dmesg | grep -i nvrm shows why it "
            "does not load. Blacklist nouveau; unbind cards from vfio-pci.",
            is_driver=True,
        ),
        Need(
            what="device file of the driver",
            any_of=(
                "dev/nvidiactl",
                "driver-root/dev/nvidiactl",
                "run/nvidia/driver/dev/nvidiactl",
            ),
            means="NVML cannot be initialized, so the plugin finds 0 GPUs.",
            do="run nvidia-smi or nvidia-modprobe -c 0 on the node, which creates the files; in a "
            "pod, use the runtime class nvidia, or mount /dev of the host.",
        ),
        Need(
            what="device file of a GPU",
            any_of=(
                "dev/nvidia[0-9]*",
                "driver-root/dev/nvidia[0-9]*",
                "run/nvidia/driver/dev/nvidia[0-9]*",
            ),
            means="the driver is loaded and has no GPU: each failed to start, or is hidden here.",
            do="dmesg | grep -i xid; nvidia-modprobe -c 0; in a pod, NVIDIA_VISIBLE_DEVICES=all.",
        ),
        Need(
            what=SONAME,
            missing=_missing_library,
            means="the plugin cannot query the driver, and advertises 0 GPUs.",
            do="in a pod, use the runtime class nvidia (nvidia-container-toolkit), or mount the "
            "driver's root at /driver-root; on a node, install the driver's libraries.",
            follows=False,
        ),
    ),
)
