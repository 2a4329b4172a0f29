"""Words for tests of the Intel GPU plugin."""

from collections.abc import Callable

import deviceplugin as dp
from deviceplugin_intelgpu import IntelGpuPlugin
from intelgpu.tree import IntelTree

Make = Callable[..., IntelGpuPlugin]
"""Makes a plugin for a tree, with settings by their names."""
Build = Callable[..., IntelTree]
"""Makes the tree of a machine."""


def nodes(device: dp.Device) -> list[str]:
    """Return the paths of the nodes that a container gets."""
    return [node.container_path for node in device.nodes]
