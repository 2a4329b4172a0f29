"""TOML as nodes: what ``tomllib`` reads, with the line where each statement begins."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

from deviceplugin._config.documents.nodes import (
    MAX_NODES,
    DocumentNode,
    MalformedError,
    Path,
    check_size,
    of_value,
    too_deep,
    too_many,
)

_TOKEN: Final = re.compile(
    r'(?P<text>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*)'
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<end>\n)",
    re.DOTALL,
)
"""What is needed to find where the statements of a valid document end."""
_NAME_OR_DOT: Final = re.compile(
    r"""(?P<name>"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|[\w-]+)|(?P<dot>\.)|(?P<other>[^ \t])"""
)
"""The parts of a dotted key. It matches something everywhere, so it is linear."""
MOST_NAMES: Final = 50
"""Names of a dotted key. For each, tomllib walks through all before it."""
_PLACE: Final = re.compile(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$")


def compose(text: str) -> DocumentNode | None:
    """Return the outermost value; None for an empty document; MalformedError if it is not valid.

    A value within another has the line of the statement that they are in.
    """
    _check_keys(text)
    try:
        document = tomllib.loads(text)
    except RecursionError as error:
        raise too_deep() from error
    except ValueError as error:
        found = _PLACE.search(str(error))
        line = int(found[1] or text.count("\n") + 1) if found else 0
        raise MalformedError(_PLACE.sub("", str(error)), line) from error
    check_size(document)
    return of_value(document, _lines(text), line=1) if document else None


def _check_keys(text: str) -> None:
    """Raise MalformedError if a dotted key has too many names, or all of them together."""
    dots, before, every = 0, "", 0
    for found in _NAME_OR_DOT.finditer(text if text.count(".") >= MOST_NAMES else ""):
        kind = found.lastgroup or ""
        dots = 0 if kind in {"other", before} else dots + (kind == "dot")
        before = kind
        every += kind == "dot"
        if dots >= MOST_NAMES or every > MAX_NODES:
            line = text.count("\n", 0, found.start()) + 1
            raise too_deep(line) if dots >= MOST_NAMES else too_many(line)


def _lines(text: str) -> dict[Path, int]:
    """Return the line of the statement that first mentions each value."""
    lines: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    """The number of elements of each array of tables so far."""
    table: Path = ()
    for line, statement in _statements(text):
        names = list(_names(tomllib.loads(statement)))
        if not names:
            continue
        if statement.lstrip().startswith("["):
            table = _table(names, statement, tables)
            place = table
        else:
            place = (*table, *names)
        for length in range(len(place)):
            lines.setdefault(place[: length + 1], line)
    lines[()] = min(lines.values(), default=1)
    return lines


def _table(names: list[str], statement: str, tables: dict[Path, int]) -> Path:
    """Return the path of a header, through the last element of each array of tables on the way."""
    place: Path = ()
    for number, name in enumerate(names, 1):
        place += (name,)
        if number == len(names) and statement.lstrip().startswith("[["):
            tables[place] = tables.get(place, 0) + 1
        if place in tables:
            place += (tables[place] - 1,)
    return place


def _names(value: Any) -> Iterator[str]:
    """Yield the names of the key of a statement, and of its value while that has a single key."""
    while isinstance(value, dict | list) and len(value) == 1:
        if isinstance(value, list):
            (value,) = value
        else:
            ((name, value),) = value.items()
            yield name


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a valid document with the line where each begins."""
    start = depth = 0
    line = 1
    for token in _TOKEN.finditer(text):
        depth += bool(token["open"]) - bool(token["close"])
        if token["end"] and not depth:
            yield line, text[start : token.end()]
            line += text.count("\n", start, token.end())
            start = token.end()
    yield line, text[start:]
