from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.dual_node import IDS, DualNode


@pytest.fixture
def node(root: Path) -> Iterator[DualNode]:
    """A node of a simulated cluster with a plugin that is not started yet."""
    with DualNode(root) as running:
        yield running
        running.check()


@pytest.fixture
def plugin_node(node: DualNode) -> DualNode:
    """The node, whose devices the device plugin offers."""
    node.start()
    node.wait_for(plugin=set(IDS), dra=set())
    return node


@pytest.fixture
def dra_node(node: DualNode) -> DualNode:
    """The node, whose devices are offered through DRA."""
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=set(IDS))
    return node
