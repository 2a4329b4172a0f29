"""Findings as text for people and as JSON for programs."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin.tools.doctor._runner import Result

FORMAT: Final = 1
"""Version of the JSON; raised when something that was there means something else or is gone."""

_COLOURS: Final[Mapping[Verdict, str]] = {
    Verdict.FAILURE: "\x1b[1;31m",
    Verdict.WARNING: "\x1b[33m",
    Verdict.UNKNOWN: "\x1b[2m",
    Verdict.OK: "\x1b[32m",
}
_PLAIN: Final = "\x1b[0m"
_WIDTH: Final = max(map(len, Verdict))
_NAMES: Final[Mapping[Verdict, tuple[str, str]]] = {
    Verdict.FAILURE: ("failure", "failures"),
    Verdict.WARNING: ("warning", "warnings"),
    Verdict.UNKNOWN: ("unknown", "unknown"),
    Verdict.OK: ("ok", "ok"),
}


def text(results: Sequence[Result], *, verbose: bool, colour: bool) -> str:
    """Return ``results`` as lines; what is ok only if ``verbose``."""
    shown = [r for r in results if verbose or r.finding.verdict is not Verdict.OK]
    width = max((len(result.check) for result in shown), default=0)
    lines = [_lines(result, width, colour=colour) for result in shown]
    return "\n".join([*lines, *([""] if lines else []), _summary(results), ""])


def _lines(result: Result, width: int, *, colour: bool) -> str:
    finding = result.finding
    verdict = f"{finding.verdict:{_WIDTH}}"
    if colour:
        verdict = f"{_COLOURS[finding.verdict]}{verdict}{_PLAIN}"
    indent = " " * (_WIDTH + 2)
    told = [("means", finding.means), ("do", finding.do)]
    first = _one_line(f"{finding.looked_at}: {finding.found}")
    return "\n".join(
        [
            f"{verdict}  {result.check:{width}}  {first}",
            *(f"{indent}{name + ':':6} {_one_line(words)}" for name, words in told if words),
        ]
    )


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _summary(results: Iterable[Result]) -> str:
    counts = Counter(result.finding.verdict for result in results)
    parts = [f"{counts[v]} {_NAMES[v][counts[v] != 1]}" for v in Verdict]
    return f"{', '.join(parts)}; nothing was changed"


def failed(results: Iterable[Result]) -> bool:
    """Whether anything is a failure."""
    return any(result.finding.verdict is Verdict.FAILURE for result in results)


def document(node: Node, results: Sequence[Result]) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    counts = Counter(result.finding.verdict for result in results)
    return {
        "format": FORMAT,
        "deviceplugin": version("deviceplugin"),
        "root": str(node.root),
        "user": os.geteuid(),
        "failed": failed(results),
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
        "findings": [_entry(result.check, result.finding) for result in results],
    }


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
    return json.dumps(document(node, results), indent=1) + "\n"
