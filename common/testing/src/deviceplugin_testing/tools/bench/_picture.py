"""A chart of lines as an SVG, which needs no library to be made or shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH: Final = 720
_HEIGHT: Final = 400
_ROUND: Final = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1)
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 230, 40, 50
_COLOURS: Final = ("#1f6feb", "#1a7f37", "#9a6700", "#cf222e", "#8250df")
_DASHES: Final = ("", "", "6 4", "2 3", "8 3 2 3")
"""So that lines can be told apart without colours."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the chart."""

    name: str
    values: Sequence[float]
    """One for each label of the chart."""


def chart(title: str, across: str, labels: Sequence[str], lines: Sequence[Line]) -> str:
    """Return an SVG of ``lines``, from 0 upwards, with ``labels`` below and names at their ends."""
    top = _round_up(max(max(line.values) for line in lines))
    return "\n".join([*_frame(title, across, labels, top), *_lines(lines, top), "</svg>", ""])


def _frame(title: str, across: str, labels: Sequence[str], top: float) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="13">'
    )
    yield f"<title>{escape(title)}</title>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield f'<text x="{_LEFT}" y="24" font-size="15" fill="#1f2328">{escape(title)}</text>'
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#d0d7de"/>'
        yield (
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#59636e">'
            f"{value:g}</text>"
        )
    for index, label in enumerate(labels):
        yield (
            f'<text x="{_x(index, len(labels)):.1f}" y="{_HEIGHT - _BOTTOM + 20}" '
            f'text-anchor="middle" fill="#59636e">{escape(label)}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield (
        f'<text x="{middle:g}" y="{_HEIGHT - 10}" text-anchor="middle" fill="#59636e">'
        f"{escape(across)}</text>"
    )


def _lines(lines: Sequence[Line], top: float) -> Iterator[str]:
    heights = _apart([_y(line.values[-1], top) for line in lines])
    for number, (line, height) in enumerate(zip(lines, heights, strict=True)):
        colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
        points = [(_x(i, len(line.values)), _y(value, top)) for i, value in enumerate(line.values)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        yield (
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dash}"/>'
        )
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
        yield (
            f'<text x="{_WIDTH - _RIGHT + 14}" y="{height + 4:.1f}" fill="{colour}">'
            f"{escape(line.name)}: {line.values[-1]:.0f}</text>"
        )


def _x(index: int, count: int) -> float:
    space = (_WIDTH - _LEFT - _RIGHT) / count
    return _LEFT + space * (index + 0.5)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / top


def _round_up(value: float) -> float:
    """Return the next larger number that divides into four round steps."""
    step = 1.0
    while 4 * step < value:
        step *= 10
    return next(4 * step * part for part in _ROUND if 4 * step * part >= value)


def _apart(heights: Sequence[float], least: float = 16) -> list[float]:
    """Return ``heights`` moved so far apart that names beside them do not overlap."""
    moved: dict[int, float] = {}
    last = float("-inf")
    for index in sorted(range(len(heights)), key=heights.__getitem__):
        last = moved[index] = max(heights[index], last + least)
    return [moved[index] for index in range(len(heights))]
