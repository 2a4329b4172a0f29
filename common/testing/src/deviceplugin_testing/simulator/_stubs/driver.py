"""A DRA driver whose answers can all be set, for tests of a kubelet."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

import grpc

from deviceplugin._platform import rpc
from deviceplugin.kit import files
from deviceplugin.proto.dra import HEALTH, PLUGIN_TYPE, V1, V1BETA1
from deviceplugin.proto.dra import dra_health_v1alpha1_pb2 as health_pb
from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as watcher_pb
from deviceplugin_testing.simulator._dra.plugins import SERVICES
from deviceplugin_testing.simulator._stubs.scripted import ScriptedService
from deviceplugin_testing.simulator._wire import UnixServer

_HEALTH: Final = health_pb.DESCRIPTOR.services_by_name["DRAResourceHealth"]
_REGISTRATION: Final = watcher_pb.DESCRIPTOR.services_by_name["Registration"]
_WORKERS: Final = 32
_CODES: Final = {"Healthy": health_pb.HEALTHY, "Unhealthy": health_pb.UNHEALTHY}

Health = Mapping[tuple[str, str], str]
"""Pool and device to health."""


class StubDriver(ScriptedService):
    """A scripted DRA driver on one socket in the kubelet's plugins_registry.

    ``with StubDriver(kubelet.registry_dir, "driver.example.com") as driver: ...`` serves it. By
    default, each claim gets the device ``device`` of the pool ``pool``. With a ``cdi_dir``, its
    container gets the variable ``CLAIM``, with the claim's name.
    """

    def __init__(
        self,
        directory: Path,
        driver: str,
        *,
        socket: str = "driver-reg.sock",
        cdi_dir: Path | None = None,
        services: Sequence[str] = (V1, V1BETA1, HEALTH),
    ) -> None:
        """Make a driver that will listen on ``socket`` in ``directory``.

        Args:
            directory: The kubelet's plugins_registry.
            driver: Name to register.
            socket: File name of the socket.
            cdi_dir: Where it writes a CDI specification for each claim.
            services: The ``supported_versions`` to register. All are served in any case.
        """
        info = watcher_pb.PluginInfo(
            type=PLUGIN_TYPE, name=driver, supported_versions=list(services)
        )
        super().__init__(info)
        self.driver = driver
        self.socket = directory / socket
        """The path of its socket."""
        self.on_prepare: Callable[[pb.Claim], pb.NodePrepareResourceResponse] = self.one_device
        self.on_unprepare: Callable[[pb.Claim], pb.NodeUnprepareResourceResponse] = self._forget
        self.answer_prepare: Callable[[pb.NodePrepareResourcesResponse], Any] = lambda given: given
        """Changes the whole answer to NodePrepareResources."""
        self.prepared: list[list[str]] = []
        """The names of the claims of each NodePrepareResources."""
        self.unprepared: list[list[str]] = []
        self.versions: list[str] = []
        """The service by which each of these calls came."""
        self._cdi_dir = cdi_dir
        self._health: list[health_pb.DeviceHealth] = []
        self._server: UnixServer | None = None

    # Control

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve."""
        handlers = [
            rpc.service(_REGISTRATION, self),
            rpc.service(_HEALTH, self),
            *(rpc.service(service, self._calls(name)) for name, service in SERVICES.items()),
        ]
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = UnixServer(
            self.socket,
            handlers,
            scratch=self.socket.with_name(f".{self.socket.name}"),
            publish=os.rename,
            workers=_WORKERS,
        )
        self._server.start()

    def kill(self) -> None:
        """End as by a signal: all calls break, and the socket stays. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.cancel()
            self.release()
            self.end_streams()
            server.stop()

    def stop(self) -> None:
        """Remove the socket and end. Idempotent."""
        if self._server is not None:
            self.socket.unlink(missing_ok=True)
        self.kill()

    def report(self, health: Health, *, message: str = "", timeout: int = 0) -> None:
        """Report the health of devices on all streams, and as the first report on later ones.

        Args:
            health: ``Healthy`` or ``Unhealthy``; anything else is unknown.
            message: The message of each device.
            timeout: Seconds for which the report holds; 0 for the kubelet's default.
        """
        with self._changed:
            self._health = [
                health_pb.DeviceHealth(
                    device=health_pb.DeviceIdentifier(pool_name=pool, device_name=device),
                    health=_CODES.get(state, health_pb.UNKNOWN),
                    message=message,
                    health_check_timeout_seconds=timeout,
                )
                for (pool, device), state in health.items()
            ]
            self._send()

    # Answers

    def one_device(self, claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        """Answer with ``device`` of ``pool``, and write its CDI specification."""
        return self.devices(claim, "device")

    def devices(
        self, claim: pb.Claim, *names: str, request: str = ""
    ) -> pb.NodePrepareResourceResponse:
        """Answer with devices of ``pool``. The first one has the CDI device, if there is one."""
        ids = []
        if self._cdi_dir is not None:
            ids = [f"{self.driver}/claim={claim.uid}"]
            self.write_cdi(claim.uid, {"env": [f"CLAIM={claim.name}"]})
        return pb.NodePrepareResourceResponse(
            devices=[
                pb.Device(
                    pool_name="pool",
                    device_name=name,
                    request_names=[request] if request else [],
                    cdi_device_ids=ids if name == names[0] else [],
                )
                for name in names
            ]
        )

    def write_cdi(self, name: str, edits: Mapping[str, Any], *, version: str = "0.5.0") -> Path:
        """Write a CDI specification with one device, and return its path."""
        assert self._cdi_dir is not None
        self._cdi_dir.mkdir(parents=True, exist_ok=True)
        path = self._cdi_dir / f"{self.driver}-{name}.json"
        devices = [{"name": name, "containerEdits": dict(edits)}]
        document = {"cdiVersion": version, "kind": f"{self.driver}/claim", "devices": devices}
        files.write(path, json.dumps(document), durable=False)
        return path

    def _forget(self, claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        if self._cdi_dir is not None:
            (self._cdi_dir / f"{self.driver}-{claim.uid}.json").unlink(missing_ok=True)
        return pb.NodeUnprepareResourceResponse()

    # What the kubelet calls

    def _calls(self, version: str) -> SimpleNamespace:
        """Return the calls of one version of the API. Messages are the same bytes in all."""
        return SimpleNamespace(
            NodePrepareResources=partial(self.prepare, version=version),
            NodeUnprepareResources=partial(self.unprepare, version=version),
        )

    def prepare(self, request: Any, context: grpc.ServicerContext, version: str) -> Any:
        """Answer NodePrepareResources as ``on_prepare`` does for each claim."""
        self.prepared.append([claim.name for claim in request.claims])
        self.versions.append(version)

        def answer() -> Any:
            claims = {claim.uid: self.on_prepare(claim) for claim in request.claims}
            return self.answer_prepare(pb.NodePrepareResourcesResponse(claims=claims))

        return self._answer("NodePrepareResources", context, answer)

    def unprepare(self, request: Any, context: grpc.ServicerContext, version: str) -> Any:
        """Answer NodeUnprepareResources as ``on_unprepare`` does for each claim."""
        self.unprepared.append([claim.name for claim in request.claims])
        self.versions.append(version)

        def answer() -> Any:
            claims = {claim.uid: self.on_unprepare(claim) for claim in request.claims}
            return pb.NodeUnprepareResourcesResponse(claims=claims)

        return self._answer("NodeUnprepareResources", context, answer)

    def NodeWatchResources(  # noqa: N802 - the wire's name
        self, _request: health_pb.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[health_pb.NodeWatchResourcesResponse]:
        """Send each report, until ``end_streams`` or until the kubelet is gone."""
        return self._stream(
            "NodeWatchResources",
            context,
            0,
            lambda: health_pb.NodeWatchResourcesResponse(devices=self._health),
        )
