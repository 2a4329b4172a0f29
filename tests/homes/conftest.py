"""Fixtures of the tests of homes."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(root: Path) -> Path:
    """On a disk: what pods mount from below /dev, such as /dev/shm, is the node's."""
    return root
