"""The values of a document in YAML, JSON or TOML, each with its line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Kind = Literal[
    "text", "integer", "number", "boolean", "date", "nothing", "list", "mapping", "other"
]
MAX_DEPTH: Final = 200
"""Levels of values within values."""
MAX_NODES: Final = 500_000
"""Values of a document, including those that aliases repeat."""
_KINDS: Final[Mapping[type, Kind]] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "nothing",
}


class MalformedError(ValueError):
    """A document is not valid in its language. ``line`` counts from 1, and 0 means unknown."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(" ".join(problem.split()))
        self.line = line


class TooDeepError(MalformedError):
    """Values are nested too deeply to be meant."""

    def __init__(self, line: int = 0) -> None:
        super().__init__("nested too deeply", line)


@dataclass(eq=False, repr=False, slots=True)
class Node:
    """A value in a document."""

    kind: Kind
    line: int = 0
    """From 1; 0 where there is none."""
    raw: str = ""
    """A scalar as it is written, without quotes."""
    value: Any = None
    """A scalar as a Python object."""
    readable: bool = True
    """Whether ``value`` could be made. It cannot from the date 2001-99-99, for example."""
    items: "list[Node]" = field(default_factory=list)
    pairs: "dict[str, Node]" = field(default_factory=dict)
    repeated: "list[tuple[str, int]]" = field(default_factory=list)
    """Duplicate keys, with their lines."""

    @property
    def children(self) -> "list[Node]":
        """The values in a list or mapping."""
        return self.items or [*self.pairs.values()]

    def add(self, key: str, node: "Node", line: int) -> None:
        """Add ``node`` to a mapping at ``key``."""
        if key in self.pairs:
            self.repeated.append((key, line))
        self.pairs[key] = node


Path = tuple[str | int, ...]


def of_value(
    value: Any, lines: Mapping[Path, int] | None = None, path: Path = (), line: int = 0
) -> Node:
    """Return the node of a Python object, such as JSON and TOML give.

    ``lines`` has the lines of some values by path. Another value has the line of its container.

    Raises:
        TooDeepError: Values are nested too deeply.
    """
    line = (lines or {}).get(path, line)
    if len(path) > MAX_DEPTH:
        raise TooDeepError(line)
    if isinstance(value, Mapping):
        node = Node("mapping", line)
        for key, inner in value.items():
            node.add(str(key), of_value(inner, lines, (*path, str(key)), line), line)
        return node
    if isinstance(value, list | tuple):
        items = [of_value(inner, lines, (*path, index), line) for index, inner in enumerate(value)]
        return Node("list", line, items=items)
    raw = str(value).lower() if isinstance(value, bool) else str(value)
    return Node(_KINDS.get(type(value), "date"), line, raw, value)


def check_depth(root: Node) -> None:
    """Raise TooDeepError if values are nested too deeply, or endlessly by an alias."""
    level, seen = [root], 0
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in parent.children]
        seen += len(level)
        if seen > MAX_NODES:
            break
        if not level:
            return
    raise TooDeepError(root.line)
