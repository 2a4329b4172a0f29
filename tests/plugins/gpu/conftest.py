"""The fake NVIDIA driver, compiled once, and a node that has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu import fake_nvml
from gpu.rig import GpuRig


@pytest.fixture(scope="session")
def nvml_library(pytestconfig: pytest.Config) -> Path:
    """Compile the fake library unless an earlier run has; all workers share it."""
    assert pytestconfig.cache is not None
    return fake_nvml.build_or_skip(pytestconfig.cache.mkdir("fake-nvml"))


@pytest.fixture
def rig(tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuRig]:
    """A node without GPUs so far."""
    node = GpuRig(tmp_path, nvml_library, monkeypatch)
    yield node
    node.close()
