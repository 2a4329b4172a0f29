"""What several tests of the kit stand on."""

from pathlib import Path

import pytest

from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_testing.fixture import FailingKernel
from hardware.tree import Hardware


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    """Return a node without devices."""
    return Hardware(tmp_path / "node")


@pytest.fixture
def kernel() -> FailingKernel:
    """Return a kernel whose calls can be made to fail."""
    return FailingKernel()


@pytest.fixture
def look(hardware: Hardware, kernel: FailingKernel) -> "type[Tree]":
    """Return what makes a new look at the node."""

    class Look(Tree):
        def __init__(self) -> None:
            super().__init__(Sysfs(hardware.sys, kernel), dev=hardware.dev, udev=hardware.udev)

    return Look
