"""The socket on which a resource is served, from its creation to its removal."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import grpc
import grpc.aio

from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._kubelet.offer import Offer
from deviceplugin._kubelet.service import Servicer
from deviceplugin._platform import event_loop, open_files, rpc
from deviceplugin._platform.file_identity import file_identity
from deviceplugin._platform.hooks import Hooks
from deviceplugin._platform.unix_sockets import MAX_PATH, answers, check_exists, is_ours, try_socket
from deviceplugin._registration.by_kubelet_socket import Registrar
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import ConfigError
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

_START_TIMEOUT: Final = 10.0
"""Seconds. It takes milliseconds."""
_STOP_GRACE: Final = 1.0
_STOP_TIMEOUT: Final = 2.0
"""Seconds. If a stream ends after the next registration, the kubelet drops that one too."""
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
_SILENT: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_REST: Final = re.compile(r"-[0-9a-f]{6}\.sock")
_SOCKET_NAME: Final = "{slug}-{token}.sock"
_SLUG_LENGTH: Final = 40
"""Most characters of the resource name in a socket's name."""


class ResourceServer:
    """Serves ``offer`` on a new socket called ``name`` for ``registrar``; OSError if it cannot."""

    def __init__(
        self,
        offer: Offer,
        registrar: Registrar,
        *,
        admission: HoldingsTracker,
        hooks: Hooks,
        metrics: Metrics,
        news: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        directory = registrar.directory
        check_exists(directory)  # gRPC would only write a message to standard error
        if problem := open_files.shortage():
            raise OSError(f"{directory}: cannot serve in it: {problem}")
        resource = offer.resource
        self.resource_name = resource.name
        self.verdict: str | None = None
        """The plugin watcher's last: empty, or why it refuses the resource; None before that."""

        def on_verdict(reason: str) -> None:
            self.verdict = reason
            if reason:
                refused(reason)
            news()

        slug, token = slug_of_resource(resource.name), registrar.token()
        self.name = _SOCKET_NAME.format(slug=slug, token=token)
        self.path = directory / self.name
        # Not by its name, or it would be that of another process which came and went.
        try_socket(directory / f".{os.urandom(6).hex()}.sock")
        self.servicer = Servicer(
            offer, admission=admission, hooks=hooks, metrics=metrics, news=news
        )
        self.expect_kubelet()  # a plugin watcher opens its stream as soon as there is a socket
        handlers = [
            rpc.service(_SERVICE, self.servicer, encoded=frozenset({"ListAndWatch"})),
            *registrar.services(resource.name, on_verdict),
        ]
        try:
            self._server = event_loop.call(_started(self.path, handlers), _START_TIMEOUT)
        except (RuntimeError, TimeoutError) as error:
            self.servicer.streams.close()
            raise OSError(f"{directory}: cannot listen in it") from error
        # Another process may have replaced it before it was looked at.
        identity = file_identity(self.path)
        self._identity = identity if is_ours(self.path) else None

    def expect_kubelet(self) -> None:
        self.servicer.streams.expect_kubelet()

    @property
    def watched(self) -> bool:
        return self.servicer.streams.watched

    @property
    def was_watched(self) -> bool:
        return not self.servicer.streams.awaiting_kubelet

    @property
    def gone(self) -> bool:
        """Whether the socket has been removed or replaced."""
        now = file_identity(self.path)
        return now is None or now != self._identity

    @property
    def is_replaced(self) -> bool:
        """Whether another process serves at its path, where the plugin watcher wants it."""
        return self.gone and answers(self.path)

    def answers(self, timeout: float) -> bool:
        """Return whether a call is answered in time, even by an error, or another one has begun."""
        begun = self.servicer.begun
        with rpc.connect(self.path) as channel:
            ask = rpc.calls(channel, _SERVICE)["GetDevicePluginOptions"]
            try:
                ask(pb.Empty(), timeout=timeout)
            except grpc.RpcError as error:
                silent = cast("grpc.Call", error).code() in _SILENT
                return not silent or self.servicer.begun != begun
        return True

    def stop(self) -> None:
        """End all streams, cancel calls that do not end, and remove the socket."""
        self.servicer.streams.close()
        with suppress(TimeoutError):  # the calls that do not end then have been cancelled
            event_loop.call(self._server.stop(_STOP_GRACE), _STOP_TIMEOUT)
        with suppress(OSError):
            self.path.unlink()


async def _started(
    path: Path, handlers: "Sequence[grpc.GenericRpcHandler[Any, Any]]"
) -> grpc.aio.Server:
    server = grpc.aio.server(handlers=handlers)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError:
        await server.start()  # gRPC frees only what has been started and stopped
        await server.stop(None)
        raise
    await server.start()
    return server


@lru_cache(maxsize=1024)
def slug_of_resource(resource: str) -> str:
    """Return the prefix of the names of sockets for ``resource``."""
    slug = resource.replace("/", "_")
    if len(slug) <= _SLUG_LENGTH:
        return slug
    from hashlib import sha256  # for long names only

    return f"{slug[: _SLUG_LENGTH - 9]}-{sha256(slug.encode()).hexdigest()[:8]}"


def slug_of(name: str) -> str:
    """Return the prefix of a socket's ``name``, before its token."""
    return name.rpartition("-")[0]


def check_directory(key: str, directory: Path) -> None:
    """Raise ConfigError if sockets in ``directory`` would have paths that are too long."""
    longest = len(os.fsencode(directory)) + 1 + _SLUG_LENGTH + len("-123456.sock")
    if longest > MAX_PATH:
        raise ConfigError(
            f"{key} {str(directory)!r} is too long: a socket in it would have a path of "
            f"{longest} bytes, of at most {MAX_PATH}"
        )


def is_socket_of(resource: str, name: str) -> bool:
    """Return whether ``name`` is that of a socket that a plugin for ``resource`` has created."""
    slug = slug_of_resource(resource)
    return name.startswith(slug) and bool(_REST.fullmatch(name, len(slug)))


def remove_stale_sockets(resource: str, directory: Path) -> None:
    """Remove the sockets for ``resource`` that killed processes left behind."""
    with suppress(OSError):
        for path in list(directory.iterdir()):
            if is_socket_of(resource, path.name) and not answers(path):
                path.unlink(missing_ok=True)
