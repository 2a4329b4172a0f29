"""The nodes of a GPU in ``/dev/dri``, for rendering and decoding through the kernel (DRM)."""

from collections.abc import Iterator
from pathlib import Path

import deviceplugin as dp
from deviceplugin.kit import drm
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_gpu.host.roots import Roots
from deviceplugin_gpu.snapshot import Gpu


def of(gpu: Gpu, roots: Roots, host_root: Path) -> list[dp.DeviceNode]:
    """Return the nodes of ``gpu`` that exist, each under its name and under its PCI address.

    The second is a link on the host. In a container it is a node, because nothing creates links.
    """
    return [*_nodes(gpu, roots, host_root)] if gpu.pci else []


def _nodes(gpu: Gpu, roots: Roots, host_root: Path) -> Iterator[dp.DeviceNode]:
    found = drm.nodes(Sysfs(roots.sys), f"bus/pci/devices/{gpu.pci}")
    links = {f"dri/{found.card}": "card", f"dri/{found.render}": "render"}
    for name in found.existing(roots.dev):
        host = str(host_root / "dev" / name)
        yield dp.DeviceNode(host, f"/dev/{name}")
        yield dp.DeviceNode(host, f"/dev/dri/by-path/pci-{gpu.pci}-{links[name]}")
