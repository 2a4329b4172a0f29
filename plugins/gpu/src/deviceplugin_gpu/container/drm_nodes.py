"""The nodes of a GPU in ``/dev/dri``, for rendering and decoding through the kernel (DRM)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin_gpu.host.roots import Roots
from deviceplugin_gpu.snapshot import Gpu

_KINDS: Final = {"card": "card", "renderD": "render"}
"""How the names of nodes begin, and what their links in by-path end with."""


def of(gpu: Gpu, roots: Roots, host_root: Path) -> list[dp.DeviceNode]:
    """Return the nodes of ``gpu`` that exist, each under its name and under its PCI address.

    The second is a link on the host. In a container it is a node, because nothing creates links.
    """
    return [*_nodes(gpu, roots, host_root)] if gpu.pci else []


def _nodes(gpu: Gpu, roots: Roots, host_root: Path) -> Iterator[dp.DeviceNode]:
    for path in sorted((roots.sys / "bus/pci/devices" / gpu.pci / "drm").glob("*[0-9]")):
        kind = _KINDS.get(path.name.rstrip("0123456789"))
        if kind is None or not (roots.dev / "dri" / path.name).exists():
            continue
        host = str(host_root / "dev/dri" / path.name)
        yield dp.DeviceNode(host, f"/dev/dri/{path.name}")
        yield dp.DeviceNode(host, f"/dev/dri/by-path/pci-{gpu.pci}-{kind}")
