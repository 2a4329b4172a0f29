"""Waiting for what GPUs report by themselves: errors, and other layouts of MIG."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event as Flag
from typing import Final

from deviceplugin_gpu.nvml import api
from deviceplugin_gpu.nvml.api import EventSet, NvmlError, Session, ask, call

log = logging.getLogger(__name__)

_QUIET: Final = 3.0
"""Seconds, beside the turns, after which a wait that does not return is one that hangs."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds of rest after a failure; twice as many after each further one."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a GPU reported."""

    uuid: str
    """Empty where it cannot be told which GPU it was."""
    kind: int
    """NVML's ``EVENT_...``."""
    number: int
    """The XID, of an XID event."""


LISTENING: Final = Event("", 0, 0)
"""Stands for whatever happened while nobody listened to the GPUs that are listened to now."""


class EventWatch:
    """The events of all GPUs. ``events`` is for one thread; the rest is thread-safe."""

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._heard_at: float | None = None
        self._problem = ""
        self._renewing = False
        self._registered: frozenset[str] | None = None
        self.deaf: Mapping[str, str] = {}
        """Why events of a GPU cannot be had, by UUID."""
        self.mute: frozenset[str] = frozenset()
        """GPUs that have no events: old ones, and virtual ones."""

    def silence(self) -> "tuple[float, str] | None":
        """Return for how many seconds events could not be waited for, and why; None if they can."""
        since = self._heard_at
        if since is None:
            return None
        seconds = self._clock() - since
        if seconds <= self._session.turn + _QUIET:
            return None
        return seconds, self._problem or "NVML does not return"

    def hears(self, gpus: Collection[str]) -> bool:
        """Tell whether the GPUs are among those that were registered, if any were so far."""
        return self._registered is None or self._registered.issuperset(gpus)

    def renew(self) -> None:
        """Register the GPUs anew: they are other ones now."""
        self._renewing = True

    def events(self, stop: Flag) -> Iterator[Event]:
        """Yield events until ``stop`` is set. After a failure it is tried again, not at once.

        ``LISTENING`` comes whenever it begins to listen: at first, after a failure, and to other
        GPUs than before.
        """
        pause = _FIRST_PAUSE
        self._heard_at = self._clock()
        self._registered = None
        try:
            while not stop.is_set():
                if not self._session.wait_until_open(self._session.turn):
                    # Nothing is wrong with listening: a look opens it, and tells if it cannot.
                    self._heard_at, pause = self._clock(), _FIRST_PAUSE
                    continue
                try:
                    for event in self._listen(stop):
                        if event is not LISTENING:
                            pause = _FIRST_PAUSE
                        if event is not None:
                            yield event
                except NvmlError as error:
                    self._fail(str(error), pause)
                    self._registered = None
                    stop.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            if stop.is_set():  # else it ended by an error, and nobody listens
                self._heard_at = None

    def _fail(self, problem: str, pause: float) -> None:
        before, self._problem = self._problem, problem
        if problem != before:
            log.warning("no events of GPUs", extra={"error": problem, "again_in": f"{pause:g} s"})

    def _listen(self, stop: Flag) -> "Iterator[Event | None]":
        """Yield each event, and None for each turn without one, as long as the GPUs stay."""
        before = self._registered
        with self._session.use():
            generation = self._session.generation
            events = EventSet()
        try:
            with self._session.use():
                self._renewing = False
                self._register(events)
            if self._registered != before:  # else a look that asks for this would go round
                yield LISTENING
            while not stop.is_set() and not self._renewing:
                with self._session.use():
                    if self._session.generation != generation:
                        return
                    found = events.wait(self._session.turn)
                self._heard_at = self._clock()
                if self._problem:
                    log.info("events of GPUs again")
                    self._problem = ""
                yield Event(*found) if found else None
        finally:
            self._free(events, generation)

    def _free(self, events: EventSet, generation: int) -> None:
        with suppress(NvmlError), self._session.use():
            if self._session.generation == generation:  # else it is gone with the rest
                events.close()

    def _register(self, events: EventSet) -> None:
        deaf: dict[str, str] = {}
        mute, seen = set(), set()
        for index in range(call("nvmlDeviceGetCount")):
            uuid = ""
            try:
                gpu = call("nvmlDeviceGetHandleByIndex", index)
                uuid = call("nvmlDeviceGetUUID", gpu)
                seen.add(uuid)
                kinds = ask(0, "nvmlDeviceGetSupportedEventTypes", gpu) & api.EVENTS
                if kinds & api.EVENT_XID:
                    events.register(gpu, uuid, kinds)
                else:
                    mute.add(uuid)
            except NvmlError as error:
                deaf[uuid] = str(error)
        deaf.pop("", None)  # one that does not know its name cannot be used anyway
        self.deaf, self.mute, self._registered = deaf, frozenset(mute), frozenset(seen)
