"""When to poll what pods hold, and whether that must be a list."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Self

from deviceplugin._attribution.podresources import Holdings

Key = tuple[str, str]
"""A resource and the id of a device."""


@dataclass(frozen=True, slots=True)
class AttributionTiming:
    """When to poll and how long to believe what is seen; seconds."""

    interval: float
    soon: float
    """After the end of an allocation: the kubelet writes it down and admits the pod."""
    at_last: float
    """After the first of a row of allocations."""
    retry: float
    stale: float
    """Age from which on the last answer says nothing any more."""
    settle: float
    """From the start of another kubelet until it has heard of all pods."""
    confirm: float
    """Between two polls that find a device free."""
    admission: float
    """From an allocation until its pod is listed, or has been rejected."""

    @classmethod
    def of(cls, interval: float) -> Self:
        """Return what goes with a poll every ``interval``."""
        return cls(
            interval=interval,
            soon=min(interval, 1.0),
            at_last=min(interval, 5.0),
            retry=min(interval, 5.0),
            stale=max(3 * interval, 2.0),  # what a slow answer may take
            settle=2 * interval,
            confirm=min(interval, 5.0),
            admission=min(interval, 10.0),
        )


class Schedule:
    """When the next poll is due, by what allocations and polls have been.

    Times are in monotonic seconds, and given by the caller. Not thread-safe.
    """

    def __init__(self, timing: AttributionTiming) -> None:
        self._timing = timing
        self._under_way = 0
        self._first: float | None = None
        self._last = 0.0
        """When the first and the last allocation ended that no poll has followed."""
        self._unseen: dict[Key, float] = {}
        """Devices that no list has shown since they were allocated, and when that was."""
        self._regular = 0.0
        """When to poll where nothing else calls for it."""
        self.list_due = True
        """Whether the next poll must be a list."""

    def wait(self, now: float, confirm_in: float | None = None) -> float:
        """Return the seconds until the next poll.

        ``confirm_in`` are those until a poll would confirm that a device is free, if any would.
        """
        if self._under_way:  # its end calls for a poll
            return self._timing.interval
        due = [self._regular]
        if self._first is not None:
            due.append(min(self._last + self._timing.soon, self._first + self._timing.at_last))
        if confirm_in is not None:
            due.append(now + confirm_in)
        return max(0.0, min(due) - now)

    def poll_at(self, when: float) -> None:
        """Have the next regular poll at that time."""
        self._regular = when

    # Allocations.

    @property
    def idle(self) -> bool:
        """Whether no allocation is under way."""
        return not self._under_way

    @property
    def unseen(self) -> Collection[Key]:
        """The devices that no list has shown since they were allocated."""
        return self._unseen.keys()

    def begin_allocation(self) -> None:
        """Look no more until ``end_allocation``."""
        self._under_way += 1

    def allocated(self, devices: Iterable[Key], now: float) -> None:
        """Have ``devices`` looked for in a list soon: the allocation has succeeded."""
        self.list_due = True
        self._last = now
        self._first = now if self._first is None else self._first
        self._unseen.update((device, now) for device in devices)

    def end_allocation(self) -> None:
        """Notice that an allocation is over, with success or without."""
        self._under_way -= 1

    # Looks.

    def begin_poll(self, now: float) -> None:
        """Notice that a poll begins: the allocations so far call for no other."""
        self._first = None
        self._forget_old(now)

    def begin_list(self, now: float) -> Collection[Key]:
        """Notice that a list is asked for, and return the devices that it may show at last."""
        self.list_due = False
        self._forget_old(now)
        return tuple(self._unseen)

    def list_failed(self) -> None:
        """Notice that there was no answer."""
        self.list_due = True

    def listed(self, holdings: Holdings, expected: Iterable[Key]) -> None:
        """Notice a list; another is due while a pod may still be on its way in.

        ``expected`` is what ``begin_list`` returned: what was allocated later cannot be in it.
        """
        for resource, device_id in expected:
            if device_id in holdings.holders(resource):
                self._unseen.pop((resource, device_id), None)
        self.list_due = self.list_due or bool(self._unseen)

    def _forget_old(self, now: float) -> None:
        """Forget what has not been seen for too long, also by a kubelet that never answers."""
        oldest = now - self._timing.settle
        self._unseen = {device: at for device, at in self._unseen.items() if at > oldest}
