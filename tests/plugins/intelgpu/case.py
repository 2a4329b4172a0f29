"""The Intel GPU plugin in every home; a simulated node has one GPU in sysfs."""

import re
from pathlib import Path

from homes.case import Case, Example, Opened
from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn, make_nodes
from intelgpu.machines import Card, Machine
from intelgpu.tree import IntelTree

PLUGIN = Plugin("intelgpu", "gpu.intel.com/i915", None)
RENDER = r"dri/renderD\d+"
_ONE = Machine((Card("0000:03:00.0", "56a0", kind="030000", numa=0, is_discrete=False),))


def look(given: Given) -> None:
    """A container has the nodes of one GPU."""
    assert 1 == sum(bool(re.fullmatch(f"/dev/{RENDER}", node)) for node in given.nodes)
    assert 1 == sum(bool(re.fullmatch(r"/dev/dri/card\d+", node)) for node in given.nodes)
    assert not given.annotations


def hardware(folder: Path, _cache: Path) -> StandIn:
    """Make a GPU whose render node can be opened."""
    tree = IntelTree(folder, _ONE)
    make_nodes((tree.dev / "dri").glob("*[0-9]"), "renderD")
    return StandIn(folder, {"DP_SYSFS_DIR": str(tree.sys), "DP_DEV_DIR": str(tree.dev)})


CASE = Case(
    PLUGIN,
    look,
    Example(PLUGIN, r"renderD\d+"),
    Opened(PLUGIN, RENDER, "rw"),
    hardware,
    flags=["--state-file=/run/deviceplugin-intelgpu/state.json"],
)
