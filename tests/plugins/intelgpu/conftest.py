"""Nodes with Intel GPUs, in temporary directories."""

from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from deviceplugin_intelgpu import IntelGpuPlugin, IntelGpuSettings
from intelgpu.machines import SMALL, Machine
from intelgpu.tree import Build, IntelTree, Make

_NO_TIME = timedelta()


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return what builds the tree of a machine."""
    numbers = count()

    def build_tree(machine: Machine = SMALL) -> IntelTree:
        return IntelTree(tmp_path / f"node{next(numbers)}", machine)

    return build_tree


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what makes a plugin for a tree; it waits for nothing."""

    def make_plugin(tree: IntelTree, **settings: object) -> IntelGpuPlugin:
        given = {"state_file": tmp_path / "state.json", "error_patience": _NO_TIME, **settings}
        made = IntelGpuSettings(sysfs_dir=tree.sys, dev_dir=tree.dev, **given)  # type: ignore[arg-type]
        return IntelGpuPlugin(made, tree.sysfs)

    return make_plugin
