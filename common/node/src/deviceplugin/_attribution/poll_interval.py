"""How long to wait between two polls, by what is waited for."""

import time
from collections.abc import Collection

from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming


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
