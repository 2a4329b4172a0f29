"""The sockets on which a DRA driver is served, and by which the kubelet finds it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from deviceplugin._dra.serving.health import MAX_STREAMS
from deviceplugin._platform import open_files, rpc
from deviceplugin._platform.file_identity import file_identity
from deviceplugin._platform.unix_sockets import MAX_PATH, check_exists, try_socket
from deviceplugin._registration.watcher_service import refusal
from deviceplugin.errors import ConfigError
from deviceplugin.proto import dra
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb

VERSIONS: Final = (dra.V1, dra.V1BETA1, dra.HEALTH)
"""The kubelet uses the first that it knows."""
_CALLS: Final = 24
"""Workers for calls: the kubelet makes one for each pod that starts, and each may wait for hooks.
"""
_STOP_GRACE: Final = 0.2
SERVICE_SOCKET: Final = "dra.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """What a driver is called, and its directories."""

    name: str
    """The name of the driver, such as ``gopher.example.com``."""
    node: str
    """The name of its node."""
    driver_dir: Path
    """The directory of all drivers; each has one of its own in it."""
    registry_dir: Path
    """The directory in which the kubelet finds plugins."""
    cdi_dir: Path
    """A directory from which container runtimes read CDI specifications."""
    instance: int = 1
    """Which of the processes of the driver this is. Each has sockets of its own."""

    @property
    def directory(self) -> Path:
        return self.driver_dir / self.name

    @property
    def claims_dir(self) -> Path:
        return self.directory / "claims"

    @property
    def metadata_dir(self) -> Path:
        """The directory of what containers can read about their devices, as KEP-5304 calls it."""
        return self.directory / "dra-device-metadata"

    @property
    def service_socket(self) -> Path:
        path = self.directory / SERVICE_SOCKET
        return path.with_stem(f"{path.stem}{self._suffix}")

    @property
    def registry_socket(self) -> Path:
        """The socket by which the kubelet finds the driver."""
        return self.registry_dir / f"{self.name}{self._suffix}-reg.sock"

    @property
    def _suffix(self) -> str:
        return f"-{self.instance}" if self.instance > 1 else ""

    def check(self) -> None:
        """Raise ConfigError if a socket would have a path that is too long."""
        sockets = {"driver-dir": self.service_socket, "registry-dir": self.registry_socket}
        for key, path in sockets.items():
            if (length := len(bytes(path))) > MAX_PATH:
                raise ConfigError(
                    f"{key} {str(path.parent)!r} is too long: a socket in it would have a path of "
                    f"{length} bytes, of at most {MAX_PATH}"
                )


@dataclass(eq=False, repr=False)
class Registration:
    """The pluginregistration service of ``driver``. It answers from memory, within a second."""

    driver: str
    endpoint: Path
    """The socket of the driver's services, as the kubelet sees it."""
    notified: Callable[[str], None]
    """Called with the kubelet's verdict: an empty string, or why it refused."""

    def handlers(self) -> "list[grpc.GenericRpcHandler[Any, Any]]":
        return [rpc.service(pb.DESCRIPTOR.services_by_name["Registration"], self)]

    def GetInfo(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:  # noqa: N802
        return pb.PluginInfo(
            type=dra.PLUGIN_TYPE,
            name=self.driver,
            endpoint=str(self.endpoint),
            supported_versions=VERSIONS,
        )

    def NotifyRegistrationStatus(  # noqa: N802
        self, request: pb.RegistrationStatus, _context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        self.notified(refusal(request))
        return pb.RegistrationStatusResponse()


class Server:
    """Serves ``handlers`` on both sockets, in place of those that are there; or OSError."""

    def __init__(
        self, service: Path, registry: Path, handlers: "Sequence[grpc.GenericRpcHandler[Any, Any]]"
    ) -> None:
        if problem := open_files.shortage():
            raise OSError(f"{service.parent}: cannot serve in it: {problem}")
        self._paths = (service, registry)  # the kubelet must find the service's first
        for path in self._paths:
            check_exists(path.parent)
            try_socket(path.with_name(f".{path.name}"))  # which the kubelet ignores
            path.unlink(missing_ok=True)
        self._workers = ThreadPoolExecutor(MAX_STREAMS + _CALLS, thread_name_prefix="dra")
        self._server = grpc.server(self._workers, handlers=list(handlers))
        try:
            for path in self._paths:
                self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            self._workers.shutdown(wait=False)
            raise OSError(f"{service.parent}, {registry.parent}: cannot listen") from error
        self._server.start()
        self._identities = [file_identity(path) for path in self._paths]

    @property
    def gone(self) -> bool:
        """Whether a socket has been removed or replaced."""
        now = [file_identity(path) for path in self._paths]
        return None in now or now != self._identities

    def stop(self) -> None:
        """Cancel calls that do not end, and remove the sockets that are still ours."""
        for path, identity in zip(reversed(self._paths), reversed(self._identities), strict=True):
            with suppress(OSError):
                if file_identity(path) == identity:
                    path.unlink()
        self._server.stop(_STOP_GRACE).wait(2 * _STOP_GRACE)
        self._workers.shutdown(wait=False)  # grpcio leaves that to the garbage collector
