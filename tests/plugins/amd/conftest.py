"""Nodes with AMD GPUs, in temporary directories."""

from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from amd.machines import SMALL, Machine
from amd.tree import AmdTree, Build, Make
from deviceplugin_amd import AmdPlugin, AmdSettings
from deviceplugin_amd.handover import Handover

_NO_TIME = timedelta()


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return what builds the tree of a machine."""
    numbers = count()

    def build_tree(machine: Machine = SMALL, **options: object) -> AmdTree:
        return AmdTree(tmp_path / f"node{next(numbers)}", machine, **options)  # type: ignore[arg-type]

    return build_tree


@pytest.fixture
def tree(build: Build) -> AmdTree:
    return build()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what makes a plugin for a tree; it waits for nothing."""

    def make_plugin(
        tree: AmdTree, handover: Handover | None = None, **settings: object
    ) -> AmdPlugin:
        given = {"state_file": tmp_path / "health.json", "error_patience": _NO_TIME, **settings}
        made = AmdSettings(sysfs_dir=tree.sys, dev_dir=tree.dev, **given)  # type: ignore[arg-type]
        return AmdPlugin(made, tree.sysfs, handover, lambda _seconds: None)

    return make_plugin
