"""Nodes with Intel GPUs, in temporary directories."""

from itertools import count
from pathlib import Path

import pytest

from intelgpu.machines import SMALL, Machine
from intelgpu.tree import Build, IntelTree


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return what builds the tree of a machine."""
    numbers = count()

    def build_tree(machine: Machine = SMALL) -> IntelTree:
        return IntelTree(tmp_path / f"node{next(numbers)}", machine)

    return build_tree
