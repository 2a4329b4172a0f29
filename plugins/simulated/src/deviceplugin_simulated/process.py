"""Random faults: a Poisson process, reproducible by its seed. Pure, without a clock."""

import heapq
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deviceplugin_simulated.life import OF_PLUGIN, OPPOSITE, Action, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Faults that begin and end at random. Times are in seconds."""

    every: float
    """Mean time between the beginnings of two faults, of any devices."""
    lasting: float
    """Mean duration of a fault."""
    faults: Sequence[Action] = (Action.UNHEALTHY, Action.UNPLUG)
    """The faults, all equally likely. One that is listed twice is twice as likely."""
    until: float = float("inf")
    """No fault begins after this time. Earlier ones end as usual."""
    slow_by: float = 1.0
    """The delay of an allocation, if ``SLOW`` is among the faults."""

    def events(self, ids: Sequence[str], seed: int) -> Iterator[Event]:
        """Yield the events of the devices ``ids`` in order of time, perhaps endlessly."""
        rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
        order = itertools.count()
        passing: list[tuple[float, int, Event]] = []
        for fault in self._beginnings(ids, rng):
            while passing and passing[0][0] <= fault.at:
                yield heapq.heappop(passing)[2]
            yield fault
            if fault.action in OPPOSITE:
                end = fault.at + rng.expovariate(1 / self.lasting)
                event = Event(end, OPPOSITE[fault.action], fault.ids)
                heapq.heappush(passing, (end, next(order), event))
        while passing:
            yield heapq.heappop(passing)[2]

    def _beginnings(self, ids: Sequence[str], rng: random.Random) -> Iterator[Event]:
        faults = [one for one in self.faults if ids or one in OF_PLUGIN]
        at = 0.0
        while faults and (at := at + rng.expovariate(1 / self.every)) <= self.until:
            action = rng.choice(faults)
            chosen = () if action in OF_PLUGIN else (rng.choice(ids),)
            by = self.slow_by if action is Action.SLOW else 0.0
            yield Event(at, action, chosen, by=by)
