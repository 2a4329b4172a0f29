"""Fixtures of the tests of whole nodes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.whole_node import remove


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="w"))
    yield path
    remove(path)
