"""Nodes with FPGAs, in temporary directories."""

from pathlib import Path

import pytest

from fpga.trees import BOTH, DFL, FpgaTree


@pytest.fixture
def tree(tmp_path: Path) -> FpgaTree:
    """Return a node with the DFL driver and no cards."""
    return FpgaTree(tmp_path / "node", DFL)


@pytest.fixture(params=sorted(BOTH))
def any_tree(tmp_path: Path, request: pytest.FixtureRequest) -> FpgaTree:
    """Return a node without cards, with each of the drivers."""
    return FpgaTree(tmp_path / "node", BOTH[request.param])
