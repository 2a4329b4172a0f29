"""Figures that are kept in a repository, and the tables of pages that are made of them.

A summary is what ``--json`` writes without the single values. Its sections can come from several
rounds of measurement; a section that is measured again takes the place of the earlier one.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deviceplugin_testing.tools.bench._errors import BenchError

Summary = Mapping[str, Any]
Rows = Sequence[tuple[str, str]]
"""What each row is called, and the name of its figure."""

COMPARED: Final[Rows] = (
    ("resident memory, idle", "RSS idle"),
    ("start to registered", "start to registered"),
    ("CPU time until registered", "CPU until registered"),
    ("Allocate of 1 device", "Allocate of 1 device"),
    ("device change to list", "device change to list"),
    ("kubelet listening to registered again", "kubelet listening to registered"),
    ("wake-ups a second, idle", "wake-ups per idle second"),
    ("threads, idle", "threads idle"),
    ("a device is healthy again after an error", "recovery"),
    ("10,000 devices: one changes, to list", "10,000 devices: change to list"),
    ("preferred allocation, 2 or 4 of 16 free GPUs", "preferred allocation"),
)
"""The rows of a comparison. Those that nobody has measured with this benchmark are texts."""
_KEPT: Final = ("name", "unit", "count", "min", "median", "max", "text")
_US_PER_MS: Final = 1000
_TEN: Final = 10


def load(path: Path) -> Summary:
    """Return the summary, or the result of ``--json``, in ``path``.

    Raises:
        BenchError: The file cannot be read, or is neither.
    """
    try:
        document: Summary = json.loads(path.read_text(encoding="utf-8"))
        missing = [each["title"] for each in document["sections"] if not each["figures"]]
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path}: no figures of deviceplugin bench --json") from error
    if missing:
        raise BenchError(f"{path}: {missing[0]} has no figures")
    return document


def merged(kept: Summary, result: Summary, titles: Mapping[str, str], note: str) -> Summary:
    """Return ``kept`` with the sections of ``result`` whose titles are keys of ``titles``.

    The values of ``titles`` are the titles that they get, and ``note`` says how they were measured.
    Of a section that is replaced, texts stay if there is no figure in their place.
    """
    noise = result.get("noise", {})
    sections = {section["title"]: section for section in kept["sections"]}
    for section in result["sections"]:
        if section["title"] not in titles:
            continue
        title = titles[section["title"]]
        earlier = sections.get(title, {"figures": []})["figures"]
        figures = [{k: _short(each[k]) for k in _KEPT if k in each} for each in section["figures"]]
        measured = {each["name"] for each in figures}
        figures += [each for each in earlier if "text" in each and each["name"] not in measured]
        sections[title] = {"title": title, "note": note, "noise": noise, "figures": figures}
    return {**kept, "sections": list(sections.values())}


def table(summary: Summary, rows: Rows = COMPARED) -> str:
    """Return a table with a column for each section, and a line on how each was measured.

    A cell is the least of times, which other work on the machine only adds to, the median of
    anything else, or what the figure has as a text. Rows without any figure are omitted.
    """
    sections = summary["sections"]
    notes = list(dict.fromkeys(section["note"] for section in sections))
    marks = [f"{each['title']} ({notes.index(each['note']) + 1})" for each in sections]
    columns = [{each["name"]: each for each in section["figures"]} for section in sections]
    lines = [_row("", marks), "|" + "---|" * (len(sections) + 1)]
    for name, figure in rows:
        cells = [_cell(column.get(figure)) for column in columns]
        if any(cells):
            lines.append(_row(name, [cell or "-" for cell in cells]))
    numbered = [f"({number}) {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, "", *numbered])


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _cell(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    if "text" in figure:
        return str(figure["text"])
    unit = figure["unit"]
    value = figure["min" if unit in {"ms", "us"} else "median"]
    if unit == "us":
        unit, value = "ms", value / _US_PER_MS
    return f"{_number(value)} {'' if unit == 'per s' else unit}".strip()


def _number(value: float) -> str:
    """Return two or three digits, as many as a busy machine justifies."""
    if value == int(value) or value >= _TEN:
        return f"{value:,.0f}"
    return f"{value:.2g}"


def _short(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


def rewritten(page: str, name: str, text: str) -> str:
    """Return ``page`` with ``text`` between ``<!-- name -->`` and ``<!-- end of name -->``.

    Raises:
        BenchError: The page does not have them.
    """
    begin = f"<!-- {name} -->"
    end = f"<!-- end of {name} -->"
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise BenchError(f"no table between {begin} and {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"
