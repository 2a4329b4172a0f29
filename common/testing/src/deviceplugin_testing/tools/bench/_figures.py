"""Measured values, and their statistics."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_ENOUGH_FOR_P99: Final = 100
"""With fewer values, a 99th percentile would be the maximum."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One or several measurements of one thing."""

    name: str
    unit: str
    """``ms``, ``MiB``, ``KiB``, ``bytes``, ``per s`` ..., or empty for a count."""
    values: Sequence[float]
    """In the order in which they were measured; at least one."""

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def p99(self) -> float | None:
        """The value that 99 % of all do not exceed; None with fewer than 100 values."""
        if len(self.values) < _ENOUGH_FOR_P99:
            return None
        return sorted(self.values)[math.ceil(len(self.values) * 0.99) - 1]

    def to_json(self) -> Mapping[str, Any]:
        """Return everything about it, ready for JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            "count": len(self.values),
            "min": min(self.values),
            "median": self.median,
            "p99": self.p99,
            "max": max(self.values),
            "values": [round(value, 6) for value in self.values],
        }


@dataclass(frozen=True, slots=True)
class Section:
    """The figures of one command."""

    title: str
    command: Sequence[str]
    figures: Sequence[Figure]

    def to_json(self) -> Mapping[str, Any]:
        """Return everything about it, ready for JSON."""
        return {
            "title": self.title,
            "command": list(self.command),
            "figures": [figure.to_json() for figure in self.figures],
        }
