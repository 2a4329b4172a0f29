"""Figures as a table for people and as JSON for programs."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from deviceplugin.tools import _command_line
from deviceplugin_testing.tools.bench._figures import Figure, Section

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_NOISY: Final = 1.25
"""Factor between the time of the same work and its least time, above which a machine is busy."""
_NAME_WIDTH: Final = 42
_NUMBER_WIDTH: Final = 10


def table(sections: Sequence[Section], calibration: Figure) -> str:
    """Return ``sections`` as text."""
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
