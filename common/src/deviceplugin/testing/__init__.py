"""Test a plugin against a kubelet, without a cluster: the pytest fixture ``kubelet``.

::

    def test_a_new_file_is_a_device(kubelet, tmp_path):
        with kubelet.running(MyPlugin(tmp_path)) as node:
            (tmp_path / "one").touch()
            node.wait_for("example.com/my", {"one"})

Installing ``deviceplugin`` makes the fixture known to pytest.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.testing._node import Kubelet, Node

__all__ = ["Kubelet", "Node", "kubelet"]


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    """Give a running kubelet in a directory of its own."""
    # Not tmp_path: the path of a Unix socket has 107 bytes at most.
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))
    try:
        with Kubelet(root) as running:
            yield running
    finally:
        shutil.rmtree(root, ignore_errors=True)
