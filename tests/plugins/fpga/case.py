"""The FPGA plugin in every home; a simulated node has two cards in sysfs."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from fpga.cards import write_hook
from fpga.trees import AFU, DFL, INTERFACE, FpgaTree, number_of
from homes.case import Case, Example, Opened
from homes.home import Given, Plugin
from homes.pretended_hardware import NODE, StandIn, make_node

# What the cards already have, because the hook refuses a container without a request.
PLUGIN = Plugin(
    "fpga",
    "fpga.intel.com/region-*",
    None,
    asks={"FPGA_REGION_1": INTERFACE, "FPGA_AFU_1": AFU},
)
PORT = "(dfl|intel-fpga)-port"


def look(given: Given) -> None:
    """A container has a port, and the annotation for its runtime."""
    assert any(re.fullmatch(f"/dev/{PORT}.*", node) for node in given.nodes)
    expected = {"com.intel.fpga.mode": "fpga.intel.com/region"}
    assert given.annotations in (None, expected)


def hardware(folder: Path, _cache: Path) -> StandIn:
    """Make two cards with a port each, as the DFL driver shows them, without bitstreams."""
    return _make(folder, ["0000:3b:00.0", "0000:5e:00.0"])


def rebooted(folder: Path, _cache: Path) -> StandIn:
    """Make them with each other's numbers, and a third one."""
    return _make(folder, ["0000:5e:00.0", "0000:3b:00.0", "0000:d8:00.0"])


def _make(folder: Path, addresses: Sequence[str]) -> StandIn:
    tree = FpgaTree(folder, DFL)
    ports = [
        port
        for number, address in enumerate(addresses)
        for port in tree.simple(AFU, address=address, number=number)
    ]
    if NODE.exists():
        tree.renumber(ports[0], NODE.stat().st_rdev)
    for port in ports:  # The hook tells them apart by numbers: one can be opened.
        path = tree.dev / port.name
        path.unlink()
        make_node(path, os.makedev(*number_of(port)))
    host = {"/opt/intel/fpga-sw": folder / "opt"}
    write_hook(folder / "hook", folder / "opt/intel-fpga-crihook", tree)
    environment = {
        "DP_SYSFS_DIR": str(tree.sys),
        "DP_DEV_DIR": str(tree.dev),
        "DP_HOOK": str(folder / "hook"),
    }
    return StandIn(folder, environment, host)


CASE = Case(
    PLUGIN,
    look,
    Example(PLUGIN, PORT),
    Opened(PLUGIN, f"{PORT}.*", "rw"),
    hardware,
    rebooted,
    flags=["--cdi-dir=/var/run/cdi"],
)
