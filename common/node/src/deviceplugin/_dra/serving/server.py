"""The sockets on which a DRA driver is served, from their creation to their removal."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc

from deviceplugin._dra.serving.health_service import MAX_STREAMS
from deviceplugin._platform import open_files
from deviceplugin._platform.file_identity import file_identity
from deviceplugin._platform.unix_sockets import MAX_PATH, check_exists, try_socket
from deviceplugin.errors import ConfigError

_CALLS: Final = 24
"""Workers for calls: the kubelet makes one for each pod that starts, and each may wait for hooks.
"""
_STOP_GRACE: Final = 0.2
SERVICE_SOCKET: Final = "dra.sock"


def registry_socket(directory: Path, driver: str) -> Path:
    """Return the socket in ``directory`` by which the kubelet finds ``driver``."""
    return directory / f"{driver}-reg.sock"


def check_paths(driver_dir: Path, registry_dir: Path, driver: str) -> None:
    """Raise ConfigError if the sockets of ``driver`` would have paths that are too long."""
    sockets = {
        "driver-dir": driver_dir / driver / SERVICE_SOCKET,
        "registry-dir": registry_socket(registry_dir, driver),
    }
    for key, path in sockets.items():
        if (length := len(bytes(path))) > MAX_PATH:
            raise ConfigError(
                f"{key} {str(path.parent)!r} is too long: a socket in it would have a path of "
                f"{length} bytes, of at most {MAX_PATH}"
            )


class Server:
    """Serves ``handlers`` on both sockets. Sockets that are there already are replaced.

    Raises:
        OSError: A socket cannot be created.
    """

    def __init__(
        self,
        service: Path,
        registry: Path,
        handlers: "Sequence[grpc.GenericRpcHandler[Any, Any]]",
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
