"""Nodes with FPGAs, in temporary directories."""

from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from fpga.trees import BOTH, DFL, FpgaTree, Make


@pytest.fixture
def tree(tmp_path: Path) -> FpgaTree:
    """Return a node with the DFL driver and no cards."""
    return FpgaTree(tmp_path / "node", DFL)


@pytest.fixture(params=sorted(BOTH))
def any_tree(tmp_path: Path, request: pytest.FixtureRequest) -> FpgaTree:
    """Return a node without cards, with each of the drivers."""
    return FpgaTree(tmp_path / "node", BOTH[request.param])


@pytest.fixture
def settings(tmp_path: Path) -> FpgaSettings:
    """Return settings for the node of ``tree``; its /dev is called by its real name."""
    return FpgaSettings(sysfs_dir=tmp_path / "node/sys", cdi_dir=tmp_path / "cdi")


@pytest.fixture
def make(settings: FpgaSettings) -> Make:
    """Return what makes a plugin for the node."""

    def make_plugin(mode: str = "af", **changes: object) -> FpgaPlugin:
        return FpgaPlugin(replace(settings, mode=mode, **changes))  # type: ignore[arg-type]

    return make_plugin
