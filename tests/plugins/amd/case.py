"""The AMD GPU plugin in every home; a simulated node has two GPUs in sysfs."""

import re
from dataclasses import replace
from pathlib import Path

from amd.machines import MI210
from amd.tree import AmdTree
from homes.case import Case, Example, Opened
from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn, make_nodes

PLUGIN = Plugin("amd", "amd.com/gpu", None)
RENDER = r"dri/renderD\d+"
_TWO = replace(MI210, addresses=MI210.addresses[:2], hives=MI210.hives[:2])


def look(given: Given) -> None:
    """A container has KFD and the nodes of one GPU, and nothing else."""
    assert "/dev/kfd" in given.nodes
    assert 1 == sum(bool(re.fullmatch(f"/dev/{RENDER}", node)) for node in given.nodes)
    assert 1 == sum(bool(re.fullmatch(r"/dev/dri/card\d+", node)) for node in given.nodes)
    assert not given.annotations


def hardware(folder: Path, _cache: Path) -> StandIn:
    """Make two GPUs; one of their render nodes can be opened."""
    tree = AmdTree(folder, _TWO)
    make_nodes([tree.dev / "kfd", *(tree.dev / "dri").iterdir()], "renderD")
    return StandIn(folder, {"DP_SYSFS_DIR": str(tree.sys), "DP_DEV_DIR": str(tree.dev)})


CASE = Case(
    PLUGIN,
    look,
    Example(PLUGIN, r"renderD\d+"),
    Opened(PLUGIN, RENDER, "rw"),
    hardware,
    flags=["--state-file=/run/deviceplugin-amd/health.json"],
)
