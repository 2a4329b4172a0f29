"""Fixtures of the tests of whole nodes."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="w"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
