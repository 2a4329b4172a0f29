"""Nodes with network cards, in temporary directories."""

from itertools import count
from pathlib import Path

import pytest

from rdma.machines import SAMPLE, Machine
from rdma.tree import Build, RdmaTree


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
