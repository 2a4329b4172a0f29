"""When to look at what pods hold."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Pace:
    """When to look; seconds."""

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
    """Between two looks that find a device free."""
    admission: float
    """From an allocation until its pod is listed, or has been rejected."""

    @classmethod
    def of(cls, interval: float) -> Self:
        """Return what goes with a look every ``interval``."""
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
