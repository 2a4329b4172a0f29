"""A node on which nothing is wrong, in a directory: tests then break one thing of it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.checks import Node
from deviceplugin_testing.simulator import Pod, SimulatedKubelet, StubPlugin
from hardware import healthy_node
from hardware.healthy_node import RESOURCE
from patience import PATIENCE


@pytest.fixture
def root(root: Path) -> Path:
    healthy_node.build(root)
    return root


@pytest.fixture
def kubelet(root: Path) -> Iterator[SimulatedKubelet]:
    with SimulatedKubelet(root / "var/lib/kubelet") as kubelet:
        for directory in (kubelet.plugin_dir, kubelet.registry_dir):
            directory.chmod(0o750)
        yield kubelet


@pytest.fixture
def node(root: Path, kubelet: SimulatedKubelet) -> Iterator[Node]:
    """A node with a kubelet, and a plugin one of whose devices a pod has."""
    with StubPlugin(kubelet.plugin_dir, RESOURCE, ["a", "b"]):
        kubelet.wait_for(RESOURCE, {"a", "b"})
        assert kubelet.run(Pod.of("p", main={RESOURCE: 1}))
        room = os.statvfs_result((4096, 4096, 10**6, 10**6, 10**6, 10**6, 10**6, 10**6, 0, 255))
        yield replace(Node.at_root(root), statvfs=lambda _: room, timeout=PATIENCE)
