"""Keeping one resource registered with the kubelet, whatever happens on either side."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._kubelet.endpoint_status import EndpointStatus, PluginLifecycle
from deviceplugin._kubelet.offer import Offer, RegistrationNeed
from deviceplugin._kubelet.server import ResourceServer, remove_stale_sockets
from deviceplugin._kubelet.sockets import OwnSockets, SocketAlias, SocketNews
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_identity import Identity
from deviceplugin._platform.hooks import Hooks
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.by_kubelet_socket import Registrar, RegistrarChoice
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import RegistrationRefusedError

_AFTER_STREAM: Final = 0.1
"""Seconds that the kubelet gets to notice that we ended our stream, before we register again.

Otherwise it would drop the new registration together with the old one.
"""
_STREAM_TIMEOUT: Final = 2.0
"""Seconds to wait for the kubelet's stream, which a kubelet normally opens at once.

It opens none if it noticed the end of our last stream only after the registration. The wait doubles
each time, because registering again too early makes a slow kubelet drop the resource once more.
"""
_LONGEST_STREAM_TIMEOUT: Final = 10.0
_SHORT_LIFE: Final = 1.0
"""A registration that is lost within this many seconds makes the next one wait."""
_FIRST_WAIT: Final = 0.1
"""Most seconds of the first wait; it takes at least half of them."""
_LONGEST_WAIT: Final = 5.0
_START_AGAIN: Final = 5.0
"""Seconds between attempts to start the plugin."""
_RIVAL_CHECK: Final = 0.5
"""Seconds between checks whether another process of the resource lives, while there is one."""
_OUTLIVED: Final = "another process had the resource and is gone"
_NOT_NEEDED: Final = "no pod could get a device, or has one"


class Endpoint:
    """One resource, its server and its registration. ``steps`` are run by a thread of its own.

    It serves, registers and watches. After any loss it starts over with a new socket, by the same
    function. It uses the first of ``registrars`` whose directory exists. While there is no need for
    a registration, it waits for one.
    """

    def __init__(
        self,
        offer: Offer,
        *,
        admission: HoldingsTracker,
        registrars: Sequence[Registrar],
        sockets: SocketNews,
        metrics: Metrics,
        clock: Clock = MONOTONIC,
    ) -> None:
        self.resource = resource = offer.resource
        self.server: ResourceServer | None = None
        """The server that serves the resource now, if there is one."""
        self._offer = offer
        self._admission = admission
        self._need = RegistrationNeed(offer, admission)
        self._is_resting = False
        self._choice = RegistrarChoice(registrars)
        self._metrics = metrics
        self._hooks = Hooks()
        self._status = self.status = EndpointStatus(resource.name, metrics)
        self._lifecycle = PluginLifecycle(resource, self._hooks, self._status)
        self._clock = clock
        self._waiter = Waiter(clock)
        self._poked: Callable[[], None] = lambda: None
        offer.subscribe(self.poke)
        offer.watch(self._on_list)
        self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._stream_timeout = _STREAM_TIMEOUT
        self.sockets = OwnSockets(resource.name, sockets, self._choice, self.poke, clock)
        self._alias: SocketAlias | None = None
        self._former: ResourceServer | None = None
        """Ends only when the kubelet watches the next one: one of 1.37 and newer loses nothing."""
        self._last_seen: Identity = None

    @property
    def problem(self) -> str:
        return self._status.problem

    @property
    def is_registered(self) -> bool:
        return self.server is not None and not self.problem

    def on_poke(self, poked: Callable[[], None]) -> None:
        """Call ``poked``, from any thread, when the next of ``steps`` should not be delayed."""
        self._poked = poked
        poked()

    def poke(self) -> None:
        """Check again, for example because the resource's plugin has been replaced."""
        self._waiter.poke()
        self._poked()

    @property
    def up_to_date(self) -> bool:
        """Whether the kubelet has what it should: the latest list, with the latest options."""
        server = self.server
        return self._is_resting if server is None else server.servicer.up_to_date

    def stop(self) -> None:
        """Make ``steps`` end the streams, remove the socket, call the stop hook and end."""
        self._waiter.end()
        self._hooks.close()
        self._poked()

    def steps(self) -> Iterator[float]:
        """Keep the resource registered until stopped. If it raises, the process must end.

        While the kubelet watches, there is nothing to do: it yields for how many seconds, unless it
        is poked. Between that it may wait in the thread that runs it.
        """
        name = self.resource.name
        self.sockets.open()
        try:
            for registrar in self._choice.all:
                remove_stale_sockets(name, registrar.directory)
            while not self._waiter.is_over():
                try:
                    yield from self._live_once()
                except Exception as error:
                    self._status.failed(f"{type(error).__name__}: {error}", error)
                    self._waiter.pause(_LONGEST_WAIT)
        finally:
            self._stop_former()
            self.sockets.close()
            self._offer.close()
            self._lifecycle.stop()
            self._status.forget()

    def _on_list(self) -> None:
        if self._need.is_there != (self.server is not None):
            self.poke()

    def _live_once(self) -> Iterator[float]:
        """Serve and register once, and return when the registration is lost."""
        if not self._lifecycle.start():
            self._waiter.pause(_START_AGAIN)
            return
        if not self._need.is_there:
            yield from self._rest()
            return
        self._choice.make()
        try:
            server = ResourceServer(
                self._offer,
                self._choice.current,
                admission=self._admission,
                hooks=self._hooks,
                metrics=self._metrics,
                news=self.poke,
                refused=lambda reason: self._status.report("refused by the kubelet", reason),
            )
        except OSError as error:
            self._status.report("cannot serve", str(error))
            before = self._choice.directories()
            self._waiter.until(
                lambda: self._choice.directories() != before, self._backoff.next_wait()
            )
            return
        self._alias = SocketAlias.of(self.resource, self._choice.current, server.name)
        self.sockets.replace(server.name, *([self._alias.path.name] if self._alias else []))
        self.server = server
        try:
            yield from self._register_and_watch(server)
        finally:
            self.server = None
            self._status.unserved()
            if self._alias is not None:
                self._alias.release()
            if server is not self._former:
                self._stop_former()
                watched = server.watched
                server.stop()
                if watched:
                    self._waiter.pause(_AFTER_STREAM)

    def _stop_former(self) -> None:
        if self._former is not None:
            self._former.stop()
            self._former = None

    def _rest(self) -> Iterator[float]:
        self._stop_former()
        self._status.set("")
        self._is_resting = True
        try:
            yield math.inf
        finally:
            self._is_resting = False
        if self._need.is_there:
            self._status.set("starting")

    def _claim_alias(self) -> None:
        if self._alias is not None:
            self._status.aliased(self._alias.path, self._alias.claim())

    def _register_and_watch(self, server: ResourceServer) -> Iterator[float]:
        waiter = self._waiter.unless(lambda: server.gone or not self._need.is_there)
        while not waiter.is_over():
            seen = self._choice.current.identity()
            if seen != self._last_seen:
                self._last_seen = seen
                self._backoff.reset()
            if (kubelet := self._register(server, seen, waiter)) is not None:
                yield from self._watch(server, kubelet)
                return
            if server.watched or server.verdict:
                return  # a failed attempt left this state, and only a new server clears it

    def _register(self, server: ResourceServer, seen: Identity, waiter: Waiter) -> Identity:
        self._status.set("waiting for the kubelet")
        try:
            return self._choice.current.register(server, waiter)
        except RegistrationRefusedError as error:
            self._status.refused(str(error))
        next_kubelet = waiter.unless(lambda: self._choice.current.identity() != seen)
        while not next_kubelet.is_over():
            next_kubelet.pause(_LONGEST_WAIT)
        return None

    def _watch(self, server: ResourceServer, kubelet: Identity) -> Iterator[float]:
        """End once the registration is lost."""
        since = self._clock.now()
        self._status.registered()
        self.sockets.registered()
        self._need.told(server.servicer.options)
        self._claim_alias()
        while not (reason := self._loss(server, kubelet, since)):
            if not self._lifecycle.start():
                self._waiter.pause(_START_AGAIN)
                return
            awaiting = server.servicer.streams.awaiting_kubelet
            self._status.set("waiting for the kubelet's stream" if awaiting else "")
            has_rival = self.sockets.has_rival or server.is_replaced
            self._status.stands_by(is_so=has_rival)
            if not awaiting:
                self._stop_former()
            limit = self._stream_timeout if awaiting else math.inf
            yield min(limit, _RIVAL_CHECK if has_rival else math.inf)
            self._claim_alias()
        self._status.stands_by(is_so=False)
        if reason is _NOT_NEEDED:
            self._status.withdrawn()
        if reason is _NOT_NEEDED or self._waiter.is_over():
            return
        self._status.lost(reason)
        longer = min(2 * self._stream_timeout, _LONGEST_STREAM_TIMEOUT)
        awaiting = server.servicer.streams.awaiting_kubelet
        self._stream_timeout = longer if awaiting else _STREAM_TIMEOUT
        if reason is _OUTLIVED:
            self._stop_former()
            self._former = server
        self._settle(since, kubelet)

    def _loss(self, server: ResourceServer, kubelet: Identity, since: float) -> str:
        """Return why the registration was lost; empty if it was not."""
        now = self._choice.current.identity()
        if self._waiter.is_over():
            return "the plugin is stopping"
        if now is not None and now != kubelet:
            return "the kubelet restarted"
        return "" if server.is_replaced else self._loss_of(server, since)

    def _loss_of(self, server: ResourceServer, since: float) -> str:
        if reason := self._own_loss(server):
            return reason
        if server.servicer.streams.awaiting_kubelet:
            late = self._clock.now() - since >= self._stream_timeout
            return "the kubelet did not open its stream" if late else ""
        if not server.watched:
            return "the kubelet ended its stream"
        return "" if self._need.is_there else _NOT_NEEDED

    def _own_loss(self, server: ResourceServer) -> str:
        if server.gone:
            return "the plugin's socket was removed"
        if not server.servicer.has_latest_options:
            return "the options of the registration changed"
        return _OUTLIVED if self.sockets.outlived() else ""

    def _settle(self, since: float, kubelet: Identity) -> None:
        """Wait after a short life, or two plugins for one resource would take it in turns."""
        if self._clock.now() - since >= _SHORT_LIFE:
            self._backoff.reset()
            return
        wait = self._backoff.next_wait()
        self._waiter.until(lambda: self._choice.current.identity() != kubelet, wait)
