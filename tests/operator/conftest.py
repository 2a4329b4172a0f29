"""An operator on a fleet of nodes."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from operators import fleet_cluster
from operators.managed import Managed


@pytest.fixture
def operator(request: pytest.FixtureRequest) -> Iterator[Managed]:
    """Return an operator on three nodes, or as many as a mark ``nodes`` says."""
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_cluster.running(getattr(request, "param", 3)))
        managed = Managed(fleet)
        stack.callback(managed.stop)
        managed.start()
        yield managed
