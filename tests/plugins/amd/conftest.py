"""Nodes with AMD GPUs, in temporary directories."""

from itertools import count
from pathlib import Path

import pytest

from amd.machines import SMALL, Machine
from amd.tree import AmdTree, Build


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return what builds the tree of a machine."""
    numbers = count()

    def build_tree(machine: Machine = SMALL, **options: bool | str) -> AmdTree:
        return AmdTree(tmp_path / f"node{next(numbers)}", machine, **options)  # type: ignore[arg-type]

    return build_tree


@pytest.fixture
def tree(build: Build) -> AmdTree:
    return build()
