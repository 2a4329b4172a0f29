"""Fixtures of the end to end suite."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from node import Node


@pytest.fixture
def node() -> Iterator[Node]:
    """Give a node without plugins."""
    root = Path(tempfile.mkdtemp(prefix="node-"))
    running = Node(root)
    running.kubelet.start()
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(root, ignore_errors=True)
    assert [] == list(running.kubelet.crashes)
