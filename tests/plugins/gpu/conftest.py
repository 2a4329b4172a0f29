"""The fake NVIDIA driver, compiled once for a run of the tests."""

from pathlib import Path

import pytest

import fake_nvml


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the fake library; all workers share it."""
    return fake_nvml.build(tmp_path_factory.getbasetemp().parent / "fake-nvml")
