"""The RDMA plugin in every home; a simulated node has cards of several kinds in sysfs."""

import re
from pathlib import Path

from homes.case import Case, Example, Opened
from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn, make_nodes
from rdma.machines import SAMPLE
from rdma.tree import RdmaTree

PLUGIN = Plugin("rdma", "rdma/hca", None)
VERBS = r"infiniband/uverbs\d+"


def look(given: Given) -> None:
    """A container has the verbs of one card, and is told which one it is."""
    assert 1 == sum(bool(re.fullmatch(f"/dev/{VERBS}", node)) for node in given.nodes)
    assert "/dev/infiniband/rdma_cm" in given.nodes
    assert re.fullmatch(r"[0-9a-f:]+[.]0", given.envs["PCIDEVICE_RDMA_HCA"])


def hardware(folder: Path, _cache: Path) -> StandIn:
    """Make the cards; their verbs can be opened."""
    tree = RdmaTree(folder, SAMPLE)
    make_nodes(tree.dev.rglob("*/*"), "uverbs")
    environment = {
        "DP_SYSFS_DIR": str(tree.sys),
        "DP_DEV_DIR": str(tree.dev),
        "DP_PROC_NET_DIR": str(tree.net),
    }
    return StandIn(folder, environment)


CASE = Case(
    PLUGIN,
    look,
    Example(PLUGIN, r"uverbs\d+"),
    Opened(PLUGIN, VERBS, "rw"),
    hardware,
    flags=[
        "--state-file=/run/deviceplugin-rdma/interfaces.json",
        "--devinfo-dir=/var/run/k8s.cni.cncf.io/devinfo/dp",
    ],
)
