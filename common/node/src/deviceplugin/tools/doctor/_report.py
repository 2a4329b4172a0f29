"""Findings as text for people and as JSON for programs."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin.tools import _reports
from deviceplugin.tools._reports import Line, Tone
from deviceplugin.tools.doctor._check import Result

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_TONES: Final[Mapping[Verdict, Tone]] = {
    Verdict.FAILURE: Tone.BAD,
    Verdict.WARNING: Tone.DOUBTFUL,
    Verdict.UNKNOWN: Tone.QUIET,
    Verdict.OK: Tone.GOOD,
}
_WIDTH: Final = max(map(len, Verdict))
_NAMES: Final[Mapping[Verdict, tuple[str, str]]] = {
    Verdict.FAILURE: ("failure", "failures"),
    Verdict.WARNING: ("warning", "warnings"),
    Verdict.UNKNOWN: ("unknown", "unknown"),
    Verdict.OK: ("ok", "ok"),
}


def text(results: Sequence[Result], *, verbose: bool, colour: bool) -> str:
    """Return ``results`` as lines; findings that are ok only if ``verbose``."""
    shown = [r for r in results if verbose or r.finding.verdict is not Verdict.OK]
    width = max((len(result.check) for result in shown), default=0)
    lines = [_line(result).show((_WIDTH, width), colour=colour) for result in shown]
    return "\n".join([*lines, *([""] if lines else []), _summary(results), ""])


def _line(result: Result) -> Line:
    finding = result.finding
    return Line(
        verdict=finding.verdict,
        tone=_TONES[finding.verdict],
        name=result.check,
        text=f"{finding.looked_at}: {finding.found}",
        notes=[("means", finding.means), ("do", finding.do)],
    )


def _summary(results: Iterable[Result]) -> str:
    counts = Counter(result.finding.verdict for result in results)
    parts = [f"{counts[v]} {_NAMES[v][counts[v] != 1]}" for v in Verdict]
    return f"{', '.join(parts)}; nothing was changed"


def failed(results: Iterable[Result]) -> bool:
    """Return whether anything is a failure."""
    return any(result.finding.verdict is Verdict.FAILURE for result in results)


def document(node: Node, results: Sequence[Result]) -> Mapping[str, Any]:
    """Return everything, ready for JSON."""
    counts = Counter(result.finding.verdict for result in results)
    parts = {
        "root": str(node.root),
        "user": os.geteuid(),
        "failed": failed(results),
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
        "findings": [_entry(result.check, result.finding) for result in results],
    }
    return _reports.document(FORMAT, parts)


def _entry(check: str, finding: Finding) -> dict[str, str]:
    return {
        "check": check,
        "verdict": finding.verdict.value,
        "looked_at": finding.looked_at,
        "found": finding.found,
        "means": finding.means,
        "do": finding.do,
    }


def to_json(node: Node, results: Sequence[Result]) -> str:
    """Return everything as JSON."""
    return _reports.to_json(document(node, results))
