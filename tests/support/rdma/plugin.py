"""Words for tests of the RDMA plugin."""

from collections.abc import Callable

import deviceplugin as dp
from deviceplugin_rdma import RdmaPlugin
from discovered import found
from rdma.tree import RdmaTree

Make = Callable[..., RdmaPlugin]
"""Makes a plugin for a tree, by the text of a configuration file and settings by their names."""
Build = Callable[..., RdmaTree]
"""Makes the tree of a machine."""


def ids(plugin: RdmaPlugin) -> dict[str, list[str]]:
    """Look; return the ids of each resource."""
    made: dict[str, list[str]] = {}
    for one, device in found(plugin).items():
        made.setdefault(str(device.resource), []).append(one)
    return made


def nodes(allocation: dp.Allocation) -> list[str]:
    """Return the device nodes of a container, without /dev/."""
    return [node.container_path.removeprefix("/dev/") for node in allocation.nodes]
