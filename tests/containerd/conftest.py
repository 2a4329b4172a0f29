"""A containerd for all tests here, where one can run."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from containers import containerd as daemon
from containers.containerd import Containerd


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    if missing := daemon.why_not():
        pytest.skip(missing)
    with TemporaryDirectory(prefix="containerd-") as root, Containerd(Path(root)) as running:
        yield running
