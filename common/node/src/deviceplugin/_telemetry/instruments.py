"""Counters, gauges and histograms: what is measured, without the library that writes it.

``prometheus_client`` is imported at the first scrape. Nothing before needs it, and it takes as long
as a third of a plugin's start.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Count:
    """A number that only grows. Thread-safe."""

    def __init__(self) -> None:
        self.created = time.time()
        """In seconds since the epoch."""
        self.value = 0.0
        self._lock = threading.Lock()

    def inc(self, amount: float = 1) -> None:
        with self._lock:
            self.value += amount


class Level:
    """A number that is set."""

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = float(value)

    def set_to_current_time(self) -> None:
        self.value = time.time()


class Times:
    """How many observations there are up to each bound, and their sum, in seconds. Thread-safe."""

    def __init__(self) -> None:
        self.created = time.time()
        """In seconds since the epoch."""
        self.sum = 0.0
        self._counts = [0] * (len(_SECONDS) + 1)
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        at = bisect_left(_SECONDS, seconds)
        with self._lock:
            self._counts[at] += 1
            self.sum += seconds

    @contextmanager
    def time(self) -> Iterator[None]:
        """Count how long the context takes, even if it raises."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - begin)

    def read(self) -> tuple[Mapping[float, int], float]:
        """Return how many observations are at most each bound, infinity last, and their sum."""
        with self._lock:
            counts, total = list(self._counts), self.sum
        found, so_far = {}, 0
        for bound, count in zip((*_SECONDS, float("inf")), counts, strict=True):
            so_far += count
            found[bound] = so_far
        return found, total


_KINDS: Final = {Count: "counter", Level: "gauge", Times: "histogram"}
_V = TypeVar("_V", Count, Level, Times)


class Instrument(Generic[_V]):
    """A metric with a value for each combination of its labels. Thread-safe."""

    def __init__(self, make: type[_V], name: str, text: str, *label_names: str) -> None:
        self.name = name
        """Without the suffix that its type has."""
        self.text = text
        self.label_names: Sequence[str] = label_names
        self.kind = _KINDS[make]
        """As Prometheus calls it."""
        self._make: type[_V] = make
        self._lock = threading.Lock()
        self._values: dict[tuple[str, ...], _V] = {}
        if not label_names:
            self.labels()

    def labels(self, *values: str) -> _V:
        """Return the value for these labels, which begins at 0."""
        if (found := self._values.get(values)) is not None:
            return found
        if len(values) != len(self.label_names):
            raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
        with self._lock:
            return self._values.setdefault(values, self._make())

    def remove(self, *values: str) -> None:
        with self._lock:
            self._values.pop(values, None)

    def read(self) -> list[tuple[dict[str, str], _V]]:
        """Return all values, each with its labels."""
        with self._lock:
            values = list(self._values.items())
        return [(dict(zip(self.label_names, labels, strict=True)), each) for labels, each in values]


Counter = Instrument[Count]
Gauge = Instrument[Level]
Histogram = Instrument[Times]
