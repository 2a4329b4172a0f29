"""The fake NVIDIA driver, compiled once, and a node that has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu import fake_library
from gpu.driver_root import DriverRoot
from gpu.rig import GpuRig


@pytest.fixture(scope="session")
def nvml_library(pytestconfig: pytest.Config) -> Path:
    """Compile the fake library unless an earlier run has; all workers share it."""
    return fake_library.build_or_skip(fake_library.kept(pytestconfig, "fake-nvml"))


@pytest.fixture(scope="session")
def compiled(pytestconfig: pytest.Config, nvml_library: Path) -> Path:
    """Return a folder for what is compiled of the fake driver, where there is a C compiler."""
    assert nvml_library.exists()
    return fake_library.kept(pytestconfig, "fake-driver")


@pytest.fixture
def rig(tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuRig]:
    """A node without GPUs so far."""
    node = GpuRig(tmp_path, nvml_library, monkeypatch)
    yield node
    node.close()


@pytest.fixture
def driver_root(rig: GpuRig, compiled: Path) -> DriverRoot:
    """The node's driver, with the libraries that containers need."""
    root = DriverRoot(rig.driver_root, compiled)
    root.install()
    return root
