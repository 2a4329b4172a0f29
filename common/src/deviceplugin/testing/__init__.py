"""Test a plugin against a kubelet, without a cluster: the pytest fixture ``kubelet``.

::

    def test_a_new_file_is_a_device(kubelet, tmp_path):
        with kubelet.running(MyPlugin(tmp_path)) as node:
            (tmp_path / "one").touch()
            node.wait_for("example.com/my", {"one"})

Installing ``deviceplugin`` makes the fixture available in pytest. Its kubelet is of the newest
simulated release of Kubernetes. For other releases, parametrise ``kubelet_version``::

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
    """Return the release of Kubernetes for ``kubelet``: the newest, unless parametrised."""
    return NEWEST


@pytest.fixture
def kubelet(kubelet_version: str) -> Iterator[Kubelet]:
    """Yield a running kubelet in a new directory."""
    # tmp_path would be too long: the path of a Unix socket has 107 bytes at most.
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))
    try:
        with Kubelet(root, KubeletConfig(version=kubelet_version)) as running:
            yield running
    finally:
        shutil.rmtree(root, ignore_errors=True)
