from collections.abc import Iterator

import pytest

from cluster.event_api import Api, running


@pytest.fixture
def api() -> Iterator[Api]:
    with running(Api()) as server:
        yield server
