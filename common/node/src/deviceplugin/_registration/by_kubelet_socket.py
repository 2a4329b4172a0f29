"""Registering with the kubelet by its socket, which disappears and comes back."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
from typing_extensions import override

from deviceplugin._platform import open_files, rpc
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.concurrency import SharedChannel, Slots
from deviceplugin._telemetry.metrics import REFUSED, UNAVAILABLE, Metrics
from deviceplugin.errors import KubeletUnavailableError, RegistrationRefusedError
from deviceplugin.kit.log import Problems, shape
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET, VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

_REGISTER_TIMEOUT: Final = 20.0
"""Seconds. A kubelet takes 10 s to give up dialling the plugin."""
_AT_A_TIME: Final = 8
"""Most calls of Register at a time. Hundreds would make each other time out."""
_FIRST_WAIT: Final = 0.005
"""Seconds. A kubelet listens this soon after its socket appears."""
_LONGEST_WAIT: Final = 5.0
_OVER_AFTER: Final = 60.0
"""Seconds without a failure after which the next one is logged again."""
_PERMANENT_REFUSALS: Final = ("requested API version", "the ResourceName")
"""Prefixes of refusals for which trying again is useless. Their gRPC code is that of all others."""


class Registrant(Protocol):
    """A served resource that must be registered."""

    @property
    def resource_name(self) -> str: ...

    @property
    def name(self) -> str:
        """The file name of its socket."""

    def expect_kubelet(self) -> None:
        """Treat the next stream as the kubelet's; without a call, the first one is."""

    @property
    def watched(self) -> bool:
        """Whether the kubelet's stream is open."""

    @property
    def was_watched(self) -> bool:
        """Whether the kubelet has opened its stream since it was expected to, open or not now."""

    @property
    def verdict(self) -> str | None:
        """The plugin watcher's last: empty, or why it refuses the resource; None before that."""


class Registrar(Protocol):
    """A way to register, and the directory for the plugin's socket."""

    directory: Path

    def token(self) -> str:
        """Return the part of the socket's name that distinguishes it from others."""

    def alias(self, name: str) -> Path | None:
        """Return the path of another name for the socket; None if it cannot have one."""

    def services(
        self, resource: str, notified: Callable[[str], None]
    ) -> "Sequence[grpc.GenericRpcHandler[Any, Any]]":
        """Return services by which a kubelet tells its verdict, which is ``notified``."""

    def identity(self) -> Identity:
        """Return a value that changes when there is another kubelet to register with."""

    def register(self, registrant: Registrant, waiter: Waiter) -> Identity:
        """Return the kubelet that accepted the registration; None if it is time to check again."""


class KubeletSocket(Registrar):
    """The kubelet of one plugin directory."""

    def __init__(self, plugin_dir: Path, metrics: Metrics) -> None:
        self.directory = plugin_dir
        self.socket = plugin_dir / KUBELET_SOCKET
        self._metrics = metrics
        self._lock = threading.Lock()
        self._last: Identity = None
        self._slots = Slots(_AT_A_TIME)
        self._channel = SharedChannel(lambda: rpc.connect(self.socket))
        self._waiting = Problems(log, lasts=_OVER_AFTER)

    @override
    def token(self) -> str:
        """Return a new one: a grpcio server that stops removes what has the name of its socket."""
        return os.urandom(3).hex()

    @override
    def alias(self, name: str) -> Path:
        return self.directory / f"{name}.sock"

    @override
    def services(
        self, resource: str, notified: Callable[[str], None]
    ) -> "Sequence[grpc.GenericRpcHandler[Any, Any]]":
        return ()

    @override
    def identity(self) -> Identity:
        now = file_identity(self.socket)
        with self._lock:
            if now is not None and now != self._last:
                if self._last is not None:
                    log.info("kubelet restarted")
                    self._metrics.kubelet_restarts.labels().inc()
                    self._metrics.events.add("kubelet restarted")
                self._last = now
        return now

    @override
    def register(self, registrant: Registrant, waiter: Waiter) -> Identity:
        """Register until a kubelet accepts, and return its identity. It waits between attempts.

        None if trying on is pointless: the kubelet restarted, ``waiter`` is over, or an attempt
        failed and left a stream: a second one would confuse the kubelet.
        """
        registrant.expect_kubelet()  # who opened a stream before that is not the kubelet
        resource, first = registrant.resource_name, self.identity()
        failures = self._metrics.registration_failures
        backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT, full_jitter=True)
        pause = waiter.unless(lambda: self.identity() != first)
        while True:
            try:
                kubelet = self._register_once(registrant, waiter)
            except KubeletUnavailableError as error:
                if pause.is_over() or registrant.watched:
                    return None
                failures.labels(resource, UNAVAILABLE).inc()
                # Logged once for all resources: hundreds may wait for the same kubelet.
                if self._waiting.is_news(shape(str(error)), ""):
                    log.warning("waiting for the kubelet", extra={"error": str(error)})
                pause.pause(backoff.next_wait())
            except RegistrationRefusedError:
                failures.labels(resource, REFUSED).inc()
                raise
            else:
                self._metrics.registrations.labels(resource).inc()
                return kubelet

    def _register_once(self, registrant: Registrant, waiter: Waiter) -> Identity:
        kubelet = self.identity()
        if kubelet is None:
            raise KubeletUnavailableError(f"{self.socket}: no such socket")
        waiter = waiter.unless(lambda: self.identity() != kubelet)
        with self._slots.slot(waiter) as is_ours:
            if not is_ours or waiter.is_over():
                # A kubelet removes all sockets before it listens, so it could not reach ours.
                raise KubeletUnavailableError("a socket was removed before registering")
            self._call(kubelet, registrant, waiter)
        return kubelet

    def _call(self, kubelet: Identity, registrant: Registrant, waiter: Waiter) -> None:
        if problem := open_files.shortage():
            raise KubeletUnavailableError(f"{self.socket}: cannot be called: {problem}")
        request = pb.RegisterRequest(
            version=VERSION, endpoint=registrant.name, resource_name=registrant.resource_name
        )
        with self._channel.use(kubelet) as channel:
            registration = pb.DESCRIPTOR.services_by_name["Registration"]
            call = rpc.calls(channel, registration)["Register"].future(
                request, timeout=_REGISTER_TIMEOUT
            )
            call.add_done_callback(lambda _: waiter.poke())
            if not waiter.until(call.done):
                call.cancel()
                raise KubeletUnavailableError("a socket was removed while registering")
            if call.code() is not grpc.StatusCode.OK:
                raise _failure(call, self.socket)


def _failure(call: grpc.RpcError, socket: Path) -> Exception:
    text = rpc.status_text(call)
    details = str(call.details())
    if details.startswith(_PERMANENT_REFUSALS):
        return RegistrationRefusedError(details)
    return KubeletUnavailableError(f"{socket}: {text}")


def is_directory(path: Path) -> bool:
    """Return whether ``path`` is a directory that this process can access."""
    with suppress(OSError):  # such as a lack of permission
        return path.is_dir()
    return False


class RegistrarChoice:
    """The first of ``registrars`` whose directory exists. For one thread."""

    def __init__(self, registrars: Sequence[Registrar]) -> None:
        self.all = registrars
        self.current = registrars[0]
        """The one to use."""
        self._is_made = False

    def make(self) -> None:
        """Choose, if that has not been possible yet. It is for good: directories come back."""
        if self._is_made:
            return
        here = [each for each in self.all if is_directory(each.directory)]
        self._is_made = bool(here)
        self.current = here[0] if here else self.all[0]

    def directories(self) -> list[Identity]:
        return [file_identity(each.directory) for each in self.all]
