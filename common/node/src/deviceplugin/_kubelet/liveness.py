"""Checking that the plugin's own sockets still answer. A restart repairs one that does not.

The checks run in their own thread, and never in a request of ``/healthz``. A socket counts as dead
only after minutes without any activity behind it, because a useless restart costs a node its
devices.
"""

import itertools
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from deviceplugin._platform import open_files
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin._telemetry.events import Events
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_INTERVAL: Final = 60.0
_TIMEOUT: Final = 10.0
"""Seconds to wait for an answer. Any call that a worker begins meanwhile counts as one."""
_AT_A_TIME: Final = 8
"""Sockets that are checked in one round. The rounds rotate through all sockets."""
_SPAN: Final = 300.0
"""Seconds without an answer after which a socket is dead, if it was checked often enough."""
_FEWEST: Final = 5
"""Least failed checks in a row: a process that was stopped for an hour has checked only once."""


class Served(Protocol):
    """A socket that is served."""

    @property
    def path(self) -> Path: ...

    @property
    def gone(self) -> bool:
        """Whether it has been removed or replaced. Then its endpoint starts over by itself."""

    def answers(self, timeout: float) -> bool:
        """Return whether it answers, or its server is busy with other calls."""


class _Silence(NamedTuple):
    """A socket that does not answer."""

    path: Path
    since: float
    at: str
    """The same as wall-clock time."""
    checks: int = 0

    def is_death(self, now: float) -> bool:
        return self.checks >= _FEWEST and now - self.since >= _SPAN


class Liveness:
    """Checks the sockets that ``served`` returns by resource. ``run`` is its thread."""

    def __init__(
        self, served: Callable[[], Mapping[str, Served]], events: Events, clock: Clock = MONOTONIC
    ) -> None:
        self._served = served
        self._events = events
        self._clock = clock
        self._waiter = Waiter(clock)
        self._silent: Mapping[str, _Silence] = {}
        """By resource. It is replaced and never modified, because other threads read it."""
        self._known_to_work = False
        self._rounds = itertools.count()
        self._problems = Problems(log)
        self._failures = Problems(log, logging.ERROR)

    def run(self) -> None:
        self._waiter.pause(_INTERVAL)
        while not self._waiter.is_over():
            try:
                self.ask()
            except Exception as error:  # such as no thread left: no reason to end the plugin
                text = f"{type(error).__name__}: {error}"
                self._failures.say("ask", "plugin socket check failed", cause=error, error=text)
            else:
                self._failures.over("ask")
            self._waiter.pause(_INTERVAL)

    def stop(self) -> None:
        self._waiter.end()

    def problem(self) -> str:
        """Return which socket is dead and since when, or an empty string.

        It is empty while no socket has ever answered: then the fault is not in this process, and a
        restart would not help.
        """
        now = self._clock.now()
        dead = [each for each in self._silent.values() if each.is_death(now)]
        if not (dead and self._known_to_work):
            return ""
        return f"{dead[0].path} has not answered since {dead[0].at}"

    def ask(self) -> None:
        """Check some of the sockets, first those that did not answer before."""
        served = self._served()
        self._silent = {name: kept for name, kept in self._silent.items() if name in served}
        self._problems.keep(served)
        for name in self._next_round(served):
            server, began = served[name], self._clock.now()
            if open_files.shortage():
                return  # no socket can be checked now
            if server.answers(_TIMEOUT):
                self._answered(name)
            elif not server.gone and self._served().get(name) is server:
                self._unanswered(name, server.path, began)
                return  # others would probably not answer either, and take as long

    def _next_round(self, served: Mapping[str, Served]) -> list[str]:
        names = sorted(served)
        start = next(self._rounds) * _AT_A_TIME % max(1, len(names))
        rotated = names[start:] + names[:start]
        return list(dict.fromkeys([*self._silent, *rotated[:_AT_A_TIME]]))

    def _answered(self, name: str) -> None:
        self._known_to_work = True
        if name in self._silent:
            silent = self._silent[name]
            self._silent = {key: kept for key, kept in self._silent.items() if key != name}
            event = "plugin socket responding again"
            log.info(event, extra={"resource": name, "socket": str(silent.path)})
            self._events.add(event, resource=name)
            self._problems.over(name)

    def _unanswered(self, name: str, path: Path, began: float) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        silence = self._silent.get(name, _Silence(path, began, at))
        silence = silence._replace(path=path, checks=silence.checks + 1)
        self._silent = {**self._silent, name: silence}
        event = "plugin socket not responding"
        if self._problems.say(name, event, resource=name, socket=str(path)):
            self._events.add(event, resource=name, detail=str(path))
