"""Measured values, their statistics, and what is reported of them."""

import math
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from deviceplugin.tools import _command_line


class BenchError(Exception):
    """Something could not be measured."""


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
        return statistics.median(self.values)

    @property
    def p99(self) -> float | None:
        """The value that 99 % of all do not exceed; None with fewer than 100 values."""
        if len(self.values) < _ENOUGH_FOR_P99:
            return None
        return sorted(self.values)[math.ceil(len(self.values) * 0.99) - 1]

    def to_json(self) -> Mapping[str, Any]:
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
    title: str
    command: Sequence[str]
    figures: Sequence[Figure]

    def to_json(self) -> Mapping[str, Any]:
        return {
            "title": self.title,
            "command": list(self.command),
            "figures": [figure.to_json() for figure in self.figures],
        }


FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_NOISY: Final = 1.25
"""Factor between the time of the same work and its least time, above which a machine is busy."""
_NAME_WIDTH: Final = 42
_NUMBER_WIDTH: Final = 10


def table(sections: Sequence[Section], calibration: Figure) -> str:
    return "\n".join([*_lines(sections), "", _noise(calibration), ""])


def _lines(sections: Sequence[Section]) -> Iterator[str]:
    heads = ("min", "median", "p99", "max")
    for section in sections:
        yield ""
        yield section.title
        if section.command:
            yield f"  {' '.join(section.command)}"
        yield ""
        numbers = "".join(head.rjust(_NUMBER_WIDTH) for head in heads)
        yield f"  {'':{_NAME_WIDTH}}{numbers}  {'':5} times"
        yield from map(_row, section.figures)


def _row(figure: Figure) -> str:
    once = len(figure.values) == 1
    least, most = min(figure.values), max(figure.values)
    values = (None, figure.median, None, None) if once else (least, figure.median, figure.p99, most)
    numbers = "".join(_number(value).rjust(_NUMBER_WIDTH) for value in values)
    return f"  {figure.name:{_NAME_WIDTH}}{numbers}  {figure.unit:5} {len(figure.values):5}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"  # noqa: PLR2004 - three digits


def noise(calibration: Figure) -> tuple[float, float]:
    """Return the median and the ninth decile of the same work, as factors of its least time."""
    values = sorted(calibration.values)
    return calibration.median / values[0], values[len(values) * 9 // 10] / values[0]


def _noise(calibration: Figure) -> str:
    median, decile = noise(calibration)
    verdict = "too noisy for single figures: compare ratios" if decile > _NOISY else "quiet"
    return (
        f"The same work took {median:.2f} times its least time in the median, and {decile:.2f} "
        f"times or more in a tenth of all attempts; load {os.getloadavg()[0]:.1f}: {verdict}."
    )


def document(sections: Sequence[Section], calibration: Figure) -> Mapping[str, Any]:
    """Return everything, ready for JSON."""
    parts = {
        "machine": {
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "grpcio": version("grpcio"),
        },
        "noise": dict(zip(("median", "ninth_decile"), noise(calibration), strict=True)),
        "calibration": calibration.to_json(),
        "sections": [section.to_json() for section in sections],
    }
    return _command_line.document(FORMAT, parts)
