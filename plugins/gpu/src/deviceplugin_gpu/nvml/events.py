"""Waiting for events of GPUs: errors, and changes of the MIG layout."""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event as Flag
from typing import Final

from deviceplugin.kit.backoff import MONOTONIC, Backoff, Clock
from deviceplugin_gpu.nvml import api
from deviceplugin_gpu.nvml.api import EventSet, Handle, NvmlError, Session, call

log = logging.getLogger(__name__)

_QUIET: Final = 3.0
"""Seconds beyond its timeout after which a wait counts as hanging."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds to pause after a failure."""
_NO_EVENTS: Final = frozenset({api.NOT_SUPPORTED, api.FUNCTION_NOT_FOUND})
"""Errors of a driver that has no events, such as in the Windows Subsystem for Linux."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a GPU reported."""

    uuid: str
    """Empty if the GPU is unknown."""
    kind: int
    """NVML's ``EVENT_...``."""
    number: int
    """The XID, if it is an XID event."""
    instance: int | None = None
    """The GPU instance (MIG) that alone is concerned, if the driver says so."""


LISTENING: Final = Event("", 0, 0)
"""Stands for any events that were missed before listening started."""


class EventWatch:
    """The events of all GPUs. ``events`` is for one thread; the rest is thread-safe."""

    def __init__(self, session: Session, clock: Clock = MONOTONIC) -> None:
        self._session = session
        self._clock = clock
        self._heard_at: float | None = None
        self._problem = ""
        self._renewing = False
        self._refused = False
        self._registered: frozenset[str] | None = None
        self.deaf: Mapping[str, str] = {}
        """Why events of a GPU cannot be received, by UUID."""
        self.mute: frozenset[str] = frozenset()
        """GPUs that have no events, such as old and virtual ones."""

    def silence(self) -> "tuple[float, str] | None":
        """Return for how many seconds events could not be received, and why; None if they can.

        Also None if the driver has no events at all, which will not change.
        """
        since = self._heard_at
        if since is None or self._refused:
            return None
        seconds = self._clock.now() - since
        if seconds <= self._session.wait_limit + _QUIET:
            return None
        return seconds, self._problem or "NVML does not return"

    def hears(self, gpus: Collection[str]) -> bool:
        """Return whether all these GPUs are registered. True before the first registration."""
        return self._registered is None or self._registered.issuperset(gpus)

    def renew(self) -> None:
        """Register the GPUs again, because they have changed."""
        self._renewing = True

    def events(self, stop: Flag) -> Iterator[Event]:
        """Yield events until ``stop`` is set. After a failure, pause and try again.

        Yield ``LISTENING`` whenever listening starts: at first, after a failure, and when the GPUs
        have changed.
        """
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._heard_at = self._clock.now()
        self._registered = None
        try:
            while not stop.is_set():
                if not self._session.wait_until_open(self._session.wait_limit):
                    # Not a failure: a discovery opens the session, and reports if it cannot.
                    self._heard_at = self._clock.now()
                    backoff.reset()
                    continue
                try:
                    for event in self._listen(stop):
                        if event is not LISTENING:
                            backoff.reset()
                        if event is not None:
                            yield event
                except NvmlError as error:
                    self._refused = error.code in _NO_EVENTS
                    pause = backoff.next_wait()
                    self._fail(str(error), pause)
                    self._registered = None
                    self._clock.pause(stop, pause)
        finally:
            if stop.is_set():  # else it ended by an error, and events are missed
                self._heard_at = None

    def _fail(self, problem: str, pause: float) -> None:
        before, self._problem = self._problem, problem
        if problem != before:
            log.warning(
                "NVML events unavailable", extra={"error": problem, "again_in": f"{pause:.1f} s"}
            )

    def _listen(self, stop: Flag) -> "Iterator[Event | None]":
        """Yield each event, and None for each wait without one, until the GPUs change."""
        before = self._registered
        with self._session.use():
            generation = self._session.generation
            events = EventSet()
        try:
            with self._session.use():
                self._renewing = False
                self._register(events)
            if self._registered != before:  # else each discovery would trigger another one
                yield LISTENING
            while not stop.is_set() and not self._renewing:
                with self._session.use():
                    if self._session.generation != generation:
                        return
                    found = events.wait(self._session.wait_limit)
                self._heard_at, self._refused = self._clock.now(), False
                if self._problem:
                    log.info("NVML events available again")
                    self._problem = ""
                yield Event(*found) if found else None
        finally:
            self._free(events, generation)

    def _free(self, events: EventSet, generation: int) -> None:
        with suppress(NvmlError), self._session.use():
            if self._session.generation == generation:  # else the shutdown has freed it
                events.close()

    def _register(self, events: EventSet) -> None:
        deaf: dict[str, str] = {}
        mute, seen = set(), set()
        for place in self._session.places():
            uuid = ""
            try:
                gpu = place.handle()
                uuid = call("nvmlDeviceGetUUID", gpu)
                seen.add(uuid)
                if not _listens(events, gpu, uuid):
                    mute.add(uuid)
            except NvmlError as error:
                deaf[uuid] = str(error)
        deaf.pop("", None)  # a GPU without a readable UUID cannot be used anyway
        for uuid in sorted(mute - self.mute):
            log.info("GPU has no events", extra={"gpu": uuid})
        self.deaf, self.mute, self._registered = deaf, frozenset(mute), frozenset(seen)


def _listens(events: EventSet, gpu: Handle, uuid: str) -> bool:
    """Register ``gpu`` for all events or at least for XIDs, and return whether it has any."""
    try:
        kinds = call("nvmlDeviceGetSupportedEventTypes", gpu) & api.EVENTS
    except NvmlError as error:
        if error.code not in api.REFUSED:
            raise
        return False
    if not kinds & api.EVENT_XID:
        return False
    for wanted in dict.fromkeys((kinds, api.EVENT_XID)):
        try:
            events.register(gpu, uuid, wanted)
        except NvmlError as error:
            if error.code not in api.REFUSED:
                raise
        else:
            return True
    return False
