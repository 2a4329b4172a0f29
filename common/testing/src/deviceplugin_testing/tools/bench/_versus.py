"""Comparing plugins or two runs: ratios, and whether the difference is clear."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from deviceplugin_testing.tools.bench import _plan
from deviceplugin_testing.tools.bench._figures import BenchError, Figure, Section
from deviceplugin_testing.tools.bench._plan import Plan, Say
from deviceplugin_testing.tools.bench._subject import BenchSubject

ROUNDS: Final = 4
"""An even number, so that each goes first equally often."""
_ENOUGH: Final = 4
"""Least number of values on each side for a clear difference."""
_NAME_WIDTH: Final = 46
_WIDTH: Final = 11


def alternate(subjects: Sequence[BenchSubject], plan: Plan, say: Say) -> Sequence[Section]:
    """Measure ``subjects`` in turns, forwards and backwards, and return a section of each.

    So the machine's other work affects all of them, and each is as often early as late.
    """
    part = _divided(plan, ROUNDS)
    sections: list[list[Section]] = [[] for _ in subjects]
    for turn in range(ROUNDS):
        for subject, measured in list(zip(subjects, sections, strict=True))[:: 1 - turn % 2 * 2]:
            say(f"round {turn + 1} of {ROUNDS}")
            measured.append(_plan.measure(subject, replace(part, seed=turn), say))
    return [_merged(measured) for measured in sections]


def _divided(plan: Plan, rounds: int) -> Plan:
    def share(number: int, least: int = 1) -> int:
        return max(least, number // rounds)

    return replace(
        plan,
        starts=share(plan.starts),
        idle=plan.idle / rounds,
        allocations=share(plan.allocations),
        changes=share(plan.changes),
        restarts=share(plan.restarts, 2) if plan.restarts else 0,
    )


def _merged(sections: Sequence[Section]) -> Section:
    figures: dict[str, Figure] = {}
    for figure in (figure for section in sections for figure in section.figures):
        before = figures.get(figure.name)
        values = [*(before.values if before else ()), *figure.values]
        figures[figure.name] = replace(figure, values=values)
    return replace(sections[0], figures=list(figures.values()))


@dataclass(frozen=True, slots=True)
class Ratio:
    name: str
    unit: str
    first: float
    second: float
    is_clear: bool
    """Whether the difference is clear: the middle halves of both sides do not overlap."""

    @property
    def factor(self) -> float | None:
        return self.second / self.first if self.first else None


def ratios(first: Section, second: Section) -> list[Ratio]:
    """Return the figures that both have, in the order of the first."""
    others = {figure.name: figure for figure in second.figures}
    return [
        Ratio(one.name, one.unit, one.median, other.median, _apart(one.values, other.values))
        for one in first.figures
        if (other := others.get(one.name)) is not None
    ]


def _apart(one: Sequence[float], other: Sequence[float]) -> bool:
    if min(len(one), len(other)) < _ENOUGH:
        return False
    (a, _, b), (c, _, d) = statistics.quantiles(one), statistics.quantiles(other)
    return b < c or d < a


def table(first: str, second: str, found: Sequence[Ratio]) -> str:
    """Return ``found`` as text; ``first`` and ``second`` name the sides."""
    return "\n".join(_lines(first, second, found))


def _lines(first: str, second: str, found: Sequence[Ratio]) -> Iterator[str]:
    yield f"A is {first}, B is {second}; medians."
    yield ""
    heads = "".join(head.rjust(_WIDTH) for head in ("A", "B", "B/A"))
    yield f"  {'':{_NAME_WIDTH}}{heads}"
    for ratio in found:
        factor = "" if ratio.factor is None else f"{ratio.factor:.2f}"
        numbers = "".join(
            text.rjust(_WIDTH) for text in (f"{ratio.first:,.2f}", f"{ratio.second:,.2f}", factor)
        )
        verdict = "" if ratio.is_clear else "  no clear difference"
        yield f"  {ratio.name:{_NAME_WIDTH}}{numbers}  {ratio.unit:5}{verdict}".rstrip()


def saved(path: Path) -> Mapping[str, Section]:
    """Return the sections that ``--output json`` has written to ``path``, by title."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {each["title"]: _section(each) for each in document["sections"]}
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path}: no figures of deviceplugin bench --output json") from error


def _section(given: Mapping[str, Any]) -> Section:
    figures = [Figure(each["name"], each["unit"], each["values"]) for each in given["figures"]]
    return Section(given["title"], given["command"], figures)


def compare(old: Path, new: Path, say: Callable[[str], None]) -> None:
    """Report the ratios of all sections that both files have."""
    before, after = saved(old), saved(new)
    common = [title for title in before if title in after]
    if not common:
        raise BenchError(f"{old} and {new} have no section in common")
    for title in common:
        say(f"\n{title}")
        say(table(str(old), str(new), ratios(before[title], after[title])))
