"""Places in a TOML text: what ``tomllib`` reads, with the line where each statement begins."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from typing_extensions import override

from deviceplugin_generic.cursors import Text

_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = {bool: "bool", int: "int", float: "float", str: "str"}
_TOKEN: Final = re.compile(
    r'(?P<text>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*)'
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<end>\n)",
    re.DOTALL,
)
"""What tells where the statements of a valid text end."""

Path = tuple[str | int, ...]


class Toml(Text):
    """A TOML text. A value within another has the line of the statement that they are in."""

    @override
    def compose(self, text: str) -> Any:
        super().compose("")  # makes what constructs values
        document = tomllib.loads(text)  # or raises, so that what comes after is of a valid text
        return _node(document, (), _lines(text), 0)


def _node(value: Any, path: Path, lines: Mapping[Path, int], line: int) -> Any:
    line = lines.get(path, line)
    mark = yaml.Mark("", 0, line, 0, None, 0)
    if isinstance(value, dict):
        pairs = [
            (_text(name, mark), _node(inner, (*path, name), lines, line))
            for name, inner in value.items()
        ]
        return yaml.MappingNode(f"{_TAG}map", pairs, mark)
    if isinstance(value, list):
        items = [_node(item, (*path, index), lines, line) for index, item in enumerate(value)]
        return yaml.SequenceNode(f"{_TAG}seq", items, mark)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _text(text, mark, _KINDS.get(type(value), "timestamp"))


def _text(text: str, mark: Any, kind: str = "str") -> Any:
    return yaml.ScalarNode(f"{_TAG}{kind}", text, mark)


def _lines(text: str) -> dict[Path, int]:
    """Return the line, from 0, of the statement that first speaks of each value."""
    lines: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    """How many elements of each array of tables there have been."""
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
    return lines


def _table(names: list[str], statement: str, tables: dict[Path, int]) -> Path:
    """Return where a header leads: into the last element of each array of tables on the way."""
    place: Path = ()
    for number, name in enumerate(names, 1):
        place += (name,)
        if number == len(names) and statement.lstrip().startswith("[["):
            tables[place] = tables.get(place, 0) + 1
        if place in tables:
            place += (tables[place] - 1,)
    return place


def _names(value: Any) -> Iterator[str]:
    """Yield the names of the key of a statement; of a value with a single key, those too."""
    while isinstance(value, dict | list) and len(value) == 1:
        if isinstance(value, list):
            (value,) = value
        else:
            ((name, value),) = value.items()
            yield name


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a valid text with the line where each begins."""
    start = line = depth = 0
    for token in _TOKEN.finditer(text):
        depth += bool(token["open"]) - bool(token["close"])
        if token["end"] and not depth:
            yield line, text[start : token.end()]
            line += text.count("\n", start, token.end())
            start = token.end()
    yield line, text[start:]
