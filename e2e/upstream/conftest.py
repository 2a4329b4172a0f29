"""A kubelet whose clock the test holds, and the gopher plugin on it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin_gopher import GopherPlugin, GopherSettings
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import KubeletConfig, StubDriver
from drivers.played_node import PlayedNode
from kubelets.equipped import Kubelet
from kubelets.plugin_node import PluginNode


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="dp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def kubelet(root: Path) -> Iterator[Kubelet]:
    """A node on which only the plugin's own pod runs."""
    (root / "cdi").mkdir()
    config = KubeletConfig(watch_interval=None, sync_interval=None, cdi_dirs=(root / "cdi",))
    with Kubelet(root, config=config) as kubelet:
        kubelet.run(PLUGIN_POD)
        yield kubelet


@pytest.fixture
def gophers(kubelet: Kubelet, root: Path, tmp_path: Path) -> Iterator[PluginNode]:
    """The node with the gopher plugin, which has two devices."""
    for name in ("gary", "gina"):
        (tmp_path / name).touch()
    node = PluginNode(kubelet, GopherPlugin(GopherSettings(directory=tmp_path)), root)
    node.start(capacity=2)
    yield node
    node.stop()


@pytest.fixture
def idle(root: Path) -> Iterator[PlayedNode]:
    """A node whose plugin is not started yet."""
    with PlayedNode(root) as node:
        yield node
        node.plugin.gate.set()
        node.check()


@pytest.fixture
def node(idle: PlayedNode) -> PlayedNode:
    """A node with three devices in slices, and a claim for one of them."""
    idle.start_driver()
    idle.make.claim("c")
    return idle


@pytest.fixture
def other(node: PlayedNode) -> Iterator[StubDriver]:
    stub = node.other_driver()
    yield stub
    stub.release()
    for name in ("p", "q"):
        node.remove(name) if node.phase(name) else None
    node.wait_phase("", "p")
    stub.stop()
