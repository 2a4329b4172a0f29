"""How long to wait between two polls, by what is waited for."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.file_identity import Identity
from deviceplugin.errors import KubeletUnavailableError

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 4.0


class PollInterval:
    """The interval of polls; shorter while devices wait for their pods, as long as these change.

    They wait to be offered through DRA, under another id, or to a pod that gets the new node of one
    that is back. For the thread that polls.
    """

    def __init__(self, timing: AttributionTiming, ownership: Ownership) -> None:
        self._timing = timing
        self._ownership = ownership
        self._draining_since = time.monotonic()
        self._is_draining = False
        self._holders: tuple[object, object] = (None, None)
        """What is waited for, and what pods held, in the last poll."""

    @property
    def seconds(self) -> float:
        if self._ownership.draining or self._ownership.hardware.waits:
            return self._timing.while_draining(time.monotonic() - self._draining_since)
        unknown = self._ownership.wanted and not self._ownership.known
        return self._timing.retry if unknown else self._timing.interval

    def note(self, holdings: Holdings, ours: Collection[str]) -> bool:
        """Poll often again if anything has changed; return whether DRA has got its last device."""
        was_draining, self._is_draining = self._is_draining, self._ownership.draining
        holds = {hold for hold in holdings.holds or () if hold.resource in ours}
        hardware = self._ownership.hardware
        holders = (self._ownership.leaving, hardware.rivals, hardware.stale.keys()), holds
        if holders != self._holders:
            self._holders, self._draining_since = holders, time.monotonic()
        return was_draining and not self._is_draining


class Refusals:
    """Spares a kubelet that has just failed to answer: its limit of calls is for all who ask."""

    def __init__(self) -> None:
        self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._kubelet: Identity = None
        self._error = ""
        self._until = 0.0

    @contextmanager
    def spared(self, kubelet: Identity) -> Iterator[None]:
        """Do the body, a request to ``kubelet``; or raise its last error, if that was just now."""
        if kubelet != self._kubelet:  # it may answer, or there is none, which costs nobody anything
            self._kubelet = kubelet
            self._forget()
        if time.monotonic() < self._until:
            raise KubeletUnavailableError(self._error)
        try:
            yield
        except KubeletUnavailableError as error:
            wait = 0.0 if kubelet is None else self._backoff.next_wait()
            self._error, self._until = str(error), time.monotonic() + wait
            raise
        self._forget()

    @property
    def any(self) -> bool:
        """Whether the last request failed."""
        return bool(self._error)

    def _forget(self) -> None:
        self._error, self._until = "", 0.0
        self._backoff.reset()
