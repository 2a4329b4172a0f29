import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deviceplugin.simulator import SimulatedKubelet, StubPlugin
from deviceplugin.simulator._stub import Devices


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="dp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def kubelet(root: Path) -> Iterator[SimulatedKubelet]:
    with SimulatedKubelet(root, dial_timeout=0.3) as kubelet:
        yield kubelet


@pytest.fixture
def stub(kubelet: SimulatedKubelet) -> Iterator[Callable[..., StubPlugin]]:
    """Makes plugins that serve and are not registered yet, and stops them all at the end."""
    stubs = []

    def start(
        resource: str = "x.io/dev", devices: Devices = ("a", "b"), **options: object
    ) -> StubPlugin:
        plugin = StubPlugin(kubelet.plugin_dir, resource, devices, **options)  # type: ignore[arg-type]
        plugin.start()
        stubs.append(plugin)
        return plugin

    yield start
    for plugin in stubs:
        plugin.stop()
