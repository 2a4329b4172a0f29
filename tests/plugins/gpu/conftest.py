"""The fake NVIDIA driver, compiled once for a run of the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import fake_nvml
from gpu_rig import GpuRig


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the fake library; all workers share it."""
    return fake_nvml.build(tmp_path_factory.getbasetemp().parent / "fake-nvml")


@pytest.fixture
def rig(tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuRig]:
    """A node without GPUs so far."""
    node = GpuRig(tmp_path, nvml_library, monkeypatch)
    yield node
    node.close()
