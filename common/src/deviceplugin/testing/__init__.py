"""Test a plugin against a kubelet, without a cluster: the pytest fixture ``kubelet``.

::

    def test_a_new_file_is_a_device(kubelet, tmp_path):
        with kubelet.running(MyPlugin(tmp_path)) as node:
            (tmp_path / "one").touch()
            node.wait_for("example.com/my", {"one"})

Installing ``deviceplugin`` makes the fixture known to pytest. It is of the newest release of
Kubernetes that is simulated; for others, parametrise ``kubelet_version``::

    @pytest.mark.parametrize("kubelet_version", ["1.26", "1.34"])
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.simulator import NEWEST, KubeletConfig
from deviceplugin.testing._node import Kubelet, Node
from deviceplugin.testing._sysfs import FailingKernel

__all__ = ["FailingKernel", "Kubelet", "Node", "kubelet", "kubelet_version"]


@pytest.fixture
def kubelet_version() -> str:
    """Give the release of Kubernetes that ``kubelet`` is of: the newest, unless parametrised."""
    return NEWEST


@pytest.fixture
def kubelet(kubelet_version: str) -> Iterator[Kubelet]:
    """Give a running kubelet in a directory of its own."""
    # Not tmp_path: the path of a Unix socket has 107 bytes at most.
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))
    try:
        with Kubelet(root, KubeletConfig(version=kubelet_version)) as running:
            yield running
    finally:
        shutil.rmtree(root, ignore_errors=True)
