from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.moded_node import MODES, ModedNode, in_mode


@pytest.fixture(params=MODES)
def moded(request: pytest.FixtureRequest, root: Path) -> Iterator[ModedNode]:
    """A node in each mode, of whose three healthy devices a pod has one."""
    with in_mode(root, request.param) as node:
        yield node
