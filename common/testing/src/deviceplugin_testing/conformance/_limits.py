"""Time limits for the plugin, and numbers of attempts."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and counts of a run. Times are in seconds."""

    start: float = 10.0
    """From the start of the process to its registration."""
    within: float = 10.0
    """For later reactions of the plugin: to register again, to list a change."""
    republished: float = 75.0
    """For slices that somebody has deleted to be published again. A driver by the library of
    Kubernetes waits 30 s, and until a minute after it wrote them itself."""
    call: float = 1.0
    """For Allocate and the other short calls, because the node waits meanwhile."""
    first_list: float = 2.0
    """From the opening of a stream to its first list."""
    hello: float = 1.0
    """For a socket to answer with the HTTP/2 preface, at the time of Register."""
    pre_start: float = 30.0
    """For PreStartContainer: the kubelet's own limit."""
    stop: float = 5.0
    """From SIGTERM to the end of the process."""
    quiet: float = 10.0
    """For which an undisturbed plugin is observed."""
    settle: float = 1.0
    """For which it is left alone before that. What is left over after this time is a leak."""
    look: float = 2.0
    """Of one observation, until the plugin is idle again after a loss."""
    calm: float = 10.0
    """From the recovery after a loss until the plugin must be idle again."""
    down: float = 3.0
    """For which the kubelet stays down when it is down for long."""
    streams: int = 8
    """Streams opened at the same time."""
    devices: int = 32
    """Most devices that are allocated one by one."""
    restarts: int = 5
    """Restarts at random moments."""
    leak_restarts: int = 50
    """Restarts after which nothing may have grown."""
    idle_cpu: float = 0.02
    """Share of one CPU while nothing happens, whatever happened before."""
    wakeups: float = 50.0
    """Wake-ups of all threads per second while nothing happens."""
    growth: int = 8 * 1024 * 1024
    """Bytes by which the process may grow over ``leak_restarts``, besides a tenth of its size."""


QUICK: Final = Limits(
    quiet=2.5, settle=0.5, look=1.0, calm=5.0, down=1.0, restarts=3, leak_restarts=8
)
"""Finds the same faults except for slow ones."""
