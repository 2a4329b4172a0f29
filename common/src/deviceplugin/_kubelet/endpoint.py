"""Keeping one resource registered with the kubelet, whatever happens on either side."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.admission import Admission
from deviceplugin._kubelet.endpoint_status import EndpointStatus
from deviceplugin._kubelet.plugin_lifecycle import PluginLifecycle
from deviceplugin._kubelet.server import Server, is_socket_of, remove_stale_sockets
from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin._platform.hooks import Hooks
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.kubelet_socket import Registrar, is_directory
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import RegistrationRefusedError
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET

_STREAM_TIMEOUT: Final = 10.0
"""Seconds to wait for the kubelet's stream, which a kubelet normally opens at once."""
_SHORT_LIFE: Final = 1.0
"""A registration that is lost within this many seconds makes the next one wait."""
_FIRST_WAIT: Final = 0.1
"""Most seconds of the first wait; it takes at least half of them."""
_LONGEST_WAIT: Final = 5.0
_START_AGAIN: Final = 5.0
"""Seconds between attempts to start the plugin."""


class Endpoint:
    """One resource, its server and its registration. ``run`` is its thread.

    It serves, registers and watches. After any loss it starts over with a new socket, by the same
    function. It uses the first of ``registrars`` whose directory exists.
    """

    def __init__(
        self,
        resource: Resource,
        *,
        admission: Admission,
        registrars: Sequence[Registrar],
        sockets: SocketNews,
        metrics: Metrics,
        clock: Clock = MONOTONIC,
    ) -> None:
        self.resource = resource
        self.server: Server | None = None
        """The server that serves the resource now, if there is one."""
        self._admission = admission
        self._registrars = registrars
        self._registrar = registrars[0]
        self._settled: Sequence[Registrar] = ()
        self._sockets = sockets
        self._metrics = metrics
        self._hooks = Hooks()
        self._status = EndpointStatus(resource.name, metrics)
        self._lifecycle = PluginLifecycle(resource, self._hooks, self._status)
        self._clock = clock
        self._waiter = Waiter(clock)
        self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._socket_name = ""
        self._own_names: deque[str] = deque(maxlen=8)
        self._rival_left = False
        self._last_seen: Identity = None

    @property
    def problem(self) -> str:
        """Why the kubelet is not watching the resource; empty while it is."""
        return self._status.problem

    def recheck(self) -> None:
        """Check again, because the resource's plugin has been replaced."""
        self._waiter.poke()

    def stop(self) -> None:
        """Make ``run`` end the streams, remove the socket, call the stop hook and return."""
        self._waiter.end()
        self._hooks.close()

    def run(self) -> None:
        """Keep the resource registered until stopped.

        If it raises, trying again would not help: the caller must end the process.
        """
        name = self.resource.name
        self._sockets.listen(name, self._on_socket_change)
        try:
            for registrar in self._registrars:
                remove_stale_sockets(name, registrar.directory)
            while not self._waiter.is_over():
                try:
                    self._live_once()
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"
                    self._status.failed(text, cause=error)
                    self._waiter.pause(_LONGEST_WAIT)
        finally:
            self._sockets.forget(name, self._on_socket_change)
            self._lifecycle.stop()
            self._status.forget()

    def _on_socket_change(self, name: str | None) -> None:
        if name in {None, KUBELET_SOCKET, self._socket_name}:
            self._waiter.poke()
        elif name and name not in self._own_names and self._is_rival(name):
            # With two plugins for one resource, the kubelet forgets both when the later one stops.
            self._rival_left = True
            self._waiter.poke()

    def _is_rival(self, name: str) -> bool:
        """Return whether ``name`` was the socket of another plugin for this resource."""
        ours = is_socket_of(self.resource.name, name)
        return ours and file_identity(self._registrar.directory / name) is None

    def _live_once(self) -> None:
        """Serve and register once, and return when the registration is lost."""
        if not self._lifecycle.start():
            self._waiter.pause(_START_AGAIN)
            return
        if self._registrar not in self._settled:
            here = [r for r in self._registrars if is_directory(r.directory)]
            self._settled = here[:1]  # permanently: a directory that disappears will come back
            self._registrar = here[0] if here else self._registrars[0]
        try:
            server = Server(
                self.resource,
                self._registrar,
                admission=self._admission,
                hooks=self._hooks,
                metrics=self._metrics,
                news=self._waiter.poke,
                refused=lambda reason: self._status.report("refused by the kubelet", reason),
            )
        except OSError as error:
            self._status.report("cannot serve", str(error))
            self._pause_until_directories_change()
            return
        self._socket_name = server.name
        self._own_names.append(server.name)
        self._sockets.name(server.name, self._on_socket_change)
        self._rival_left = False
        if server.gone:  # removed before its name was known
            self._waiter.poke()
        self.server = server
        try:
            self._register_and_watch(server)
        finally:
            self.server = None
            self._status.unserved()
            server.stop()

    def _register_and_watch(self, server: Server) -> None:
        waiter = self._waiter.unless(lambda: server.gone)
        while not waiter.is_over():
            seen = self._registrar.identity()
            if seen != self._last_seen:
                self._last_seen = seen
                self._backoff.reset()
            server.servicer.expect_stream()
            if (kubelet := self._register(server, seen, waiter)) is not None:
                self._watch(server, kubelet)
                return
            if server.watched or server.refused:
                return  # a failed attempt left this state, and only a new server clears it

    def _register(self, server: Server, seen: Identity, waiter: Waiter) -> Identity:
        """Return the kubelet that accepted the registration; None if it is time to check again."""
        self._status.set("waiting for the kubelet")
        try:
            return self._registrar.register(server, waiter)
        except RegistrationRefusedError as error:
            self._status.refused(str(error))
        next_kubelet = waiter.unless(lambda: self._registrar.identity() != seen)
        while not next_kubelet.is_over():
            next_kubelet.pause(_LONGEST_WAIT)
        return None

    def _watch(self, server: Server, kubelet: Identity) -> None:
        """Return once the registration is lost."""
        since = self._clock.now()
        self._status.registered()
        while not (reason := self._loss(server, kubelet, since)):
            if not self._lifecycle.start():
                self._waiter.pause(_START_AGAIN)
                return
            awaiting = server.servicer.awaiting_stream
            self._status.set("waiting for the kubelet's stream" if awaiting else "")
            self._waiter.until_poked(_STREAM_TIMEOUT if awaiting else math.inf)
        if self._waiter.is_over():
            return
        self._status.lost(reason)
        self._settle(since, kubelet)

    def _loss(self, server: Server, kubelet: Identity, since: float) -> str:
        """Return why the registration was lost; empty if it was not."""
        now = self._registrar.identity()
        if self._waiter.is_over():
            return "the plugin is stopping"
        if now is not None and now != kubelet:
            return "the kubelet restarted"
        if server.gone:
            return "the plugin's socket was removed"
        if self._rival_left:
            return "another plugin had the resource and is gone"
        if server.servicer.awaiting_stream:
            late = self._clock.now() - since >= _STREAM_TIMEOUT
            return "the kubelet did not open its stream" if late else ""
        return "" if server.watched else "the kubelet ended its stream"

    def _settle(self, since: float, kubelet: Identity) -> None:
        """Wait before registering with the same kubelet again, if the last one was short-lived.

        Without it, two plugins for one resource would take it from each other without a pause.
        """
        if self._clock.now() - since >= _SHORT_LIFE:
            self._backoff.reset()
            return
        wait = self._backoff.next_wait()
        self._waiter.until(lambda: self._registrar.identity() != kubelet, wait)

    def _pause_until_directories_change(self) -> None:
        def now() -> list[Identity]:
            return [file_identity(registrar.directory) for registrar in self._registrars]

        before = now()
        self._waiter.until(lambda: now() != before, self._backoff.next_wait())
