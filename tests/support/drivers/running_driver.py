"""A driver that runs in threads on a node, and can be stopped and started again."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.driver import Driver
from deviceplugin._dra.serving.server import DriverSettings
from deviceplugin._platform import rpc
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin.proto.dra import dra_health_v1alpha1_pb2 as health_pb
from deviceplugin.proto.dra import dra_v1_pb2
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as registration_pb
from drivers.driver_node import DRIVER, NODE, DriverNode, gopher
from patience import PATIENCE, eventually


class Registered(NamedTuple):
    """What a driver says of itself."""

    type: str
    name: str
    endpoint: Path
    versions: Sequence[str]


def register(socket: Path, error: str = "") -> Registered:
    """Ask the driver at ``socket`` who it is, and tell it whether it is registered."""
    eventually(socket.exists, f"{socket}")
    service = registration_pb.DESCRIPTOR.services_by_name["Registration"]
    with rpc.connect(socket) as channel:
        calls = rpc.calls(channel, service)
        found = calls["GetInfo"](
            registration_pb.InfoRequest(), timeout=PATIENCE, wait_for_ready=True
        )
        status = registration_pb.RegistrationStatus(plugin_registered=not error, error=error)
        calls["NotifyRegistrationStatus"](status, timeout=PATIENCE)
    return Registered(found.type, found.name, Path(found.endpoint), list(found.supported_versions))


class DriverClient:
    """Calls of a kubelet that knows one version of the protocol."""

    def __init__(self, channel: Any, messages: ModuleType = dra_v1_pb2) -> None:
        self._messages: Any = messages
        service = self._messages.DESCRIPTOR.services_by_name["DRAPlugin"]
        self._calls = rpc.calls(channel, service)
        health = health_pb.DESCRIPTOR.services_by_name["DRAResourceHealth"]
        self._health = rpc.calls(channel, health)

    def prepare(self, *claims: Claim) -> Mapping[str, Any]:
        """Return the answers by uid."""
        return self._call("NodePrepareResources", claims)

    def begin_prepare(self, *claims: Claim) -> Any:
        """Return the call, which can be cancelled."""
        return self._begin("NodePrepareResources", claims)

    def unprepare(self, *claims: Claim) -> Mapping[str, Any]:
        return self._call("NodeUnprepareResources", claims)

    def _call(self, method: str, claims: Sequence[Claim]) -> Mapping[str, Any]:
        return dict(self._begin(method, claims).result().claims)

    def _begin(self, method: str, claims: Sequence[Claim]) -> Any:
        request = getattr(self._messages, f"{method}Request")(
            claims=[self._messages.Claim(**claim._asdict()) for claim in claims]
        )
        return self._calls[method].future(request, timeout=PATIENCE, wait_for_ready=True)

    def watch(self) -> Any:
        """Return the stream of reports of health."""
        request = health_pb.NodeWatchResourcesRequest()
        return self._health["NodeWatchResources"](request, timeout=PATIENCE, wait_for_ready=True)


@contextmanager
def connected(socket: Path, messages: ModuleType = dra_v1_pb2) -> Iterator[DriverClient]:
    with rpc.connect(socket) as channel:
        yield DriverClient(channel, messages)


class RunningDriver:
    """A node with its driver."""

    def __init__(self, path: Path) -> None:
        self.node = DriverNode(path, gopher("gary"), gopher("gerd"), gopher("gina"))
        self.settings = DriverSettings(
            name=DRIVER,
            node=NODE,
            driver_dir=path / "plugins",
            registry_dir=path / "plugins_registry",
            cdi_dir=path / "cdi",
        )
        self.settings.driver_dir.mkdir(exist_ok=True)
        self.settings.registry_dir.mkdir(exist_ok=True)
        self.registry_socket = self.settings.registry_dir / f"{DRIVER}-reg.sock"
        self.service_socket = self.settings.directory / "dra.sock"
        self.started: list[tuple[Driver, FileWatcher, list[threading.Thread]]] = []

    def start(self, clock: Clock = MONOTONIC) -> Driver:
        node = self.node
        node.restart()
        watcher = FileWatcher(5.0)
        try:
            driver = Driver(
                self.settings,
                resources=lambda: node.resources,
                discovered=lambda: node.discovered,
                ownership=node.ownership,
                claims=node.store,
                watcher=watcher,
                metrics=node.metrics,
                describe=node.describe,
                boot=node.boot_id,
                clock=clock,
            )
            driver.restore()
        except (OSError, dp.ConfigError):
            watcher.close()
            raise
        threads = [threading.Thread(target=run) for run in (watcher.run, driver.run)]
        for thread in threads:
            thread.start()
        self.started.append((driver, watcher, threads))
        return driver

    def stop(self, driver: Driver) -> None:
        (one,) = (one for one in self.started if one[0] is driver)
        self.started.remove(one)
        _, watcher, threads = one
        driver.stop()
        watcher.stop()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def close(self) -> None:
        """Stop all that run."""
        for driver, _, _ in list(self.started):
            self.stop(driver)

    def register(self) -> Registered:
        return register(self.registry_socket)
