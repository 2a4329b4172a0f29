import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deviceplugin_testing.simulator import (
    Behaviour,
    KubeletConfig,
    ManualClock,
    SimulatedKubelet,
    StubDriver,
    StubPlugin,
)
from deviceplugin_testing.simulator._plugin_watcher import watcher
from patience import PATIENCE, eventually


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="dp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def behaviour() -> Behaviour:
    """What ``kubelet`` does; tests parametrise it."""
    return Behaviour.v1_36()


@pytest.fixture
def config() -> KubeletConfig:
    """How ``kubelet`` is configured; tests parametrise it."""
    return KubeletConfig(watch_interval=None, sync_interval=None)


@pytest.fixture
def dial_timeout() -> float:
    """How long ``kubelet`` dials; tests that wait for the end of it parametrise it."""
    return 10.0


@pytest.fixture
def info_timeout() -> float | None:
    """How long ``kubelet`` waits for what a plugin says of itself: here as long as is needed.

    Tests of the second that a kubelet waits parametrise it.
    """
    return PATIENCE


@pytest.fixture
def kubelet(
    root: Path,
    clock: ManualClock,
    behaviour: Behaviour,
    config: KubeletConfig,
    dial_timeout: float,
    info_timeout: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SimulatedKubelet]:
    monkeypatch.setattr(watcher, "GET_INFO_TIMEOUT", info_timeout)
    kubelet = SimulatedKubelet(
        root, dial_timeout=dial_timeout, clock=clock, behaviour=behaviour, config=config
    )
    with kubelet:
        yield kubelet


@pytest.fixture
def stub(kubelet: SimulatedKubelet) -> Iterator[Callable[..., StubPlugin]]:
    """Makes plugins that serve and are not registered, and stops them all at the end."""
    stubs = []

    def start(
        resource: str = "x.io/dev",
        devices: object = ("a", "b"),
        *,
        directory: Path | None = None,
        **options: object,
    ) -> StubPlugin:
        plugin = StubPlugin(directory or kubelet.plugin_dir, resource, devices, **options)  # type: ignore[arg-type]
        plugin.start()
        stubs.append(plugin)
        return plugin

    yield start
    for plugin in stubs:
        plugin.stop()


@pytest.fixture
def plugin(kubelet: SimulatedKubelet, stub: Callable[..., StubPlugin]) -> Callable[..., StubPlugin]:
    """Makes plugins that are registered and whose first list has arrived."""

    def start(
        resource: str = "x.io/dev", devices: object = ("a", "b"), **options: object
    ) -> StubPlugin:
        plugin = stub(resource, devices, **options)
        received = kubelet.lists_received(resource)
        plugin.register()
        kubelet.wait(lambda: kubelet.lists_received(resource) > received)
        return plugin

    return start


@pytest.fixture
def driver(kubelet: SimulatedKubelet) -> Iterator[Callable[..., StubDriver]]:
    """Makes DRA drivers that are registered and connected, and stops them all at the end."""
    drivers = []

    def start(name: str = "x.io", socket: str = "driver-reg.sock", **options: object) -> StubDriver:
        driver = StubDriver(
            kubelet.registry_dir,
            name,
            socket=socket,
            cdi_dir=kubelet.cdi_dirs[0],
            **options,  # type: ignore[arg-type]
        )
        driver.start()
        drivers.append(driver)
        eventually(lambda: _registered(kubelet, driver), "the driver to be registered")
        return driver

    yield start
    for driver in drivers:
        driver.stop()


def _registered(kubelet: SimulatedKubelet, driver: StubDriver) -> bool:
    kubelet.watch()
    return str(driver.socket) in kubelet.dra.connected.get(driver.driver, ())
