"""The socket on which a resource is served, from its creation to its removal."""

import errno
import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import grpc
from typing_extensions import override

from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.admission import Admission
from deviceplugin._kubelet.service import MAX_STREAMS, Servicer
from deviceplugin._platform import open_files, rpc
from deviceplugin._platform.file_identity import file_identity
from deviceplugin._platform.hooks import Hooks
from deviceplugin._registration.kubelet_socket import Registrar
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import ConfigError
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

_SPARE_WORKERS: Final = 4
"""Workers for everything but streams; the kubelet makes one call at a time."""
_STOP_GRACE: Final = 0.2
_STOPS: Final = threading.BoundedSemaphore(8)
"""Limits how many servers stop at a time. The threads of hundreds would spend minutes of CPU time
waiting for each other."""
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
_SILENT: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_REST: Final = re.compile(r"-[0-9a-f]{6}\.sock")
_SOCKET_NAME: Final = "{slug}-{token}.sock"
_SLUG_LENGTH: Final = 40
"""Most characters of the resource name in a socket's name."""
_ADVICE: Final[Mapping[int, str]] = {
    errno.EROFS: "mount it writable",
    errno.EACCES: "run as a user who may write there, such as root",
    errno.EPERM: "run as a user who may write there, such as root",
}
_MAX_PATH: Final = 107
"""Most bytes in the path of a Unix socket."""


class _Workers(ThreadPoolExecutor):
    begun = 0
    """Number of tasks that have begun. It needs no lock, because only its growth matters."""

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        def run() -> Any:
            self.begun += 1
            return fn(*args, **kwargs)

        return super().submit(run)


class Server:
    """Serves ``resource`` on a new socket for ``registrar``. ``name`` is the socket's file name.

    Raises:
        OSError: The socket cannot be created.
    """

    def __init__(
        self,
        resource: Resource,
        registrar: Registrar,
        *,
        admission: Admission,
        hooks: Hooks,
        metrics: Metrics,
        news: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        directory = registrar.directory
        _check_exists(directory)  # gRPC would only write a message to standard error
        if problem := open_files.shortage():
            raise OSError(f"{directory}: cannot serve in it: {problem}")
        self.resource_name = resource.name
        self.refused = False
        """Whether the plugin watcher has reported that it is not registered."""

        def on_refusal(reason: str) -> None:
            self.refused = True
            refused(reason)
            news()

        self.name = _socket_name(resource, registrar)
        self.path = directory / self.name
        _try_socket(self.path)
        self.servicer = Servicer(
            resource, admission=admission, hooks=hooks, metrics=metrics, news=news
        )
        self._workers = _Workers(
            MAX_STREAMS + _SPARE_WORKERS, thread_name_prefix=f"rpc-{resource.name}"
        )
        self._server = grpc.server(
            self._workers,
            handlers=[
                rpc.service(_SERVICE, self.servicer, encoded=frozenset({"ListAndWatch"})),
                *registrar.services(resource.name, on_refusal),
            ],
        )
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            self._workers.shutdown(wait=False)
            raise OSError(f"{directory}: cannot listen in it") from error
        self._server.start()
        self._identity = file_identity(self.path)

    @property
    def watched(self) -> bool:
        """Whether the kubelet's stream is open."""
        return self.servicer.watched

    @property
    def gone(self) -> bool:
        """Whether the socket has been removed or replaced."""
        now = file_identity(self.path)
        return now is None or now != self._identity

    def answers(self, timeout: float) -> bool:
        """Return whether a call is answered within ``timeout`` seconds, even by an error.

        It is also true if a worker began any call meanwhile: a busy server is late but alive.
        """
        begun = self._workers.begun
        with rpc.connect(self.path) as channel:
            ask = rpc.calls(channel, _SERVICE)["GetDevicePluginOptions"]
            try:
                ask(pb.Empty(), timeout=timeout)
            except grpc.RpcError as error:
                silent = cast("grpc.Call", error).code() in _SILENT
                return not silent or self._workers.begun != begun
        return True

    def stop(self) -> None:
        """End all streams, cancel calls that do not end, and remove the socket."""
        self.servicer.close()  # outside the semaphore, so that no stream waits for other servers
        with _STOPS:
            self._server.stop(_STOP_GRACE).wait(2 * _STOP_GRACE)
        self._workers.shutdown(wait=False)  # grpcio leaves that to the garbage collector
        with suppress(OSError):
            self.path.unlink()


def _check_exists(directory: Path) -> None:
    """Raise OSError if ``directory`` does not exist or cannot be accessed."""
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError:
        mode = 0
    except OSError as error:
        raise OSError(f"{directory}: {_advised(error)}") from error
    if not stat.S_ISDIR(mode):
        raise OSError(f"{directory}: no such directory")


def _try_socket(path: Path) -> None:
    """Raise OSError if no socket can be created at ``path``: gRPC would not give the reason.

    The message does not have the name of the socket. So it is the same at each attempt, although
    the name is new each time.
    """
    try:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(str(path))
        path.unlink()
    except OSError as error:
        raise OSError(f"{path.parent}: cannot make a socket in it: {_advised(error)}") from error


def _advised(error: OSError) -> str:
    """Return the message of ``error`` without the name of any file, and advice."""
    text = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0)
    return f"{text}: {advice}" if advice else text


def _socket_name(resource: Resource, registrar: Registrar) -> str:
    plugin = resource.plugin
    if plugin.socket_name and plugin.resource == resource.name:
        return f"{plugin.socket_name}.sock"
    return _SOCKET_NAME.format(slug=slug_of_resource(resource.name), token=registrar.token())


@lru_cache(maxsize=1024)
def slug_of_resource(resource: str) -> str:
    """Return the prefix of the names of sockets for ``resource``."""
    slug = resource.replace("/", "_")
    if len(slug) <= _SLUG_LENGTH:
        return slug
    return f"{slug[: _SLUG_LENGTH - 9]}-{sha256(slug.encode()).hexdigest()[:8]}"


def slug_of(name: str) -> str:
    """Return the prefix of a socket's ``name``, before its token."""
    return name.rpartition("-")[0]


def check_directory(key: str, directory: Path) -> None:
    """Raise ConfigError if sockets in ``directory`` would have paths that are too long."""
    longest = len(os.fsencode(directory)) + 1 + _SLUG_LENGTH + len("-123456.sock")
    if longest > _MAX_PATH:
        raise ConfigError(
            f"{key} {str(directory)!r} is too long: a socket in it would have a path of "
            f"{longest} bytes, of at most {_MAX_PATH}"
        )


def is_socket_of(resource: str, name: str) -> bool:
    """Return whether ``name`` is that of a socket that a plugin for ``resource`` has created."""
    slug = slug_of_resource(resource)
    return name.startswith(slug) and bool(_REST.fullmatch(name, len(slug)))


def remove_stale_sockets(resource: str, directory: Path) -> None:
    """Remove the sockets for ``resource`` that killed processes left behind."""
    with suppress(OSError):
        for path in list(directory.iterdir()):
            if is_socket_of(resource, path.name) and not _answers(path):
                path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        return client.connect_ex(str(path)) != errno.ECONNREFUSED
