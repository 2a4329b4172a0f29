"""Nodes with network cards, in temporary directories."""

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from time import monotonic

import pytest

from deviceplugin_rdma import RdmaPlugin, RdmaSettings
from rdma.machines import SAMPLE, Machine
from rdma.tree import Build, Make, RdmaTree


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return what builds the tree of a machine."""
    numbers = count()

    def build_tree(machine: Machine = SAMPLE) -> RdmaTree:
        return RdmaTree(tmp_path / f"node{next(numbers)}", machine)

    return build_tree


@pytest.fixture
def tree(build: Build) -> RdmaTree:
    return build()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what makes a plugin for a tree; a link is down at once."""

    def make_plugin(
        tree: RdmaTree,
        configuration: object = None,
        clock: Callable[[], float] = monotonic,
        **settings: object,
    ) -> RdmaPlugin:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(configuration or {}))
        given = {
            "state_file": tmp_path / "names.json",
            "devinfo_dir": tmp_path / "devinfo",
            "link_patience": timedelta(),
            "resources": RdmaSettings.of_file(file).resources,
            **settings,
        }
        made = RdmaSettings(
            sysfs_dir=tree.sys,
            dev_dir=tree.dev,
            proc_net_dir=tree.net,
            **given,  # type: ignore[arg-type]
        )
        return RdmaPlugin(made, tree.sysfs, clock)

    return make_plugin
