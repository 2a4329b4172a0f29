"""A node with hardware in a temporary directory, and plugins that look at it."""

from pathlib import Path

import pytest

from generic.plugin import Machine


@pytest.fixture
def tmp_path(root: Path) -> Path:
    """On a disk: below /dev/shm, where other tests have theirs, this plugin takes no device."""
    return root


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "hardware")
