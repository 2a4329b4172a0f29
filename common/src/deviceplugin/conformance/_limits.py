"""How long a plugin may take, and how often things are tried."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and counts of a run. Times are in seconds."""

    start: float = 10.0
    """From the start of the process to its registration."""
    within: float = 10.0
    """For what a plugin does by itself later: register again, list a change."""
    call: float = 1.0
    """For Allocate and the other short calls: the node stands still meanwhile."""
    first_list: float = 2.0
    """From the opening of a stream to its first list."""
    hello: float = 1.0
    """For a socket to greet a client, at the moment of Register."""
    pre_start: float = 30.0
    """For PreStartContainer: the kubelet's own limit."""
    stop: float = 5.0
    """From SIGTERM to the end of the process."""
    quiet: float = 10.0
    """For which the plugin is left alone and watched."""
    settle: float = 1.0
    """For which it is left alone before that; and after which what is left over is a leak."""
    look: float = 2.0
    """For which it is watched at a time, until it is calm again after a loss."""
    calm: float = 10.0
    """From the moment when it has got over a loss to its being calm again."""
    down: float = 3.0
    """For which the kubelet stays down, where it does for long."""
    streams: int = 8
    """Streams opened at the same time."""
    devices: int = 32
    """Devices tried one by one, at most."""
    restarts: int = 5
    """Restarts at random moments."""
    leak_restarts: int = 50
    """Restarts after which nothing may have grown."""
    idle_cpu: float = 0.02
    """Share of one CPU while nothing happens, whatever has happened before."""
    wakeups: float = 50.0
    """Times that any thread may wake up, per second, while nothing happens."""
    growth: int = 8 * 1024 * 1024
    """Bytes by which the process may grow over ``leak_restarts``; a tenth on top is fine too."""


QUICK: Final = Limits(
    quiet=2.5, settle=0.5, look=1.0, calm=5.0, down=1.0, restarts=3, leak_restarts=8
)
"""Catches the same mistakes, but for the slow ones."""
