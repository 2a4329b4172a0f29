from collections.abc import Iterator

import pytest

from cluster.scripted_api import Script, running


@pytest.fixture
def script() -> Iterator[Script]:
    with running(Script()) as server:
        yield server
