"""The values of a document, each with its line: what YAML, JSON and TOML have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Kind = Literal[
    "text", "integer", "number", "boolean", "date", "nothing", "list", "mapping", "other"
]
MAX_DEPTH: Final = 200
"""Values within values."""
MAX_NODES: Final = 500_000
"""Values of a document, those that aliases repeat included."""
_KINDS: Final[Mapping[type, Kind]] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "nothing",
}


class MalformedError(ValueError):
    """A text is not valid in its language; ``line`` is where, from 1, or 0."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(" ".join(problem.split()))
        self.line = line


class TooDeepError(MalformedError):
    """Values are nested more than anybody means."""

    def __init__(self, line: int = 0) -> None:
        super().__init__("nested too deeply", line)


@dataclass(eq=False, slots=True)
class Node:
    """A value in a document."""

    kind: Kind
    line: int = 0
    """From 1; 0 where there is none."""
    raw: str = ""
    """A scalar as it is written, without quotes."""
    value: Any = None
    """A scalar as the language has it."""
    readable: bool = True
    """Whether ``value`` could be made, as it cannot of the date 2001-99-99."""
    items: "list[Node]" = field(default_factory=list)
    pairs: "dict[str, Node]" = field(default_factory=dict)
    repeated: "list[tuple[str, int]]" = field(default_factory=list)
    """Keys that are there already, with their lines."""

    @property
    def children(self) -> "list[Node]":
        """The values in a list or mapping."""
        return self.items or [*self.pairs.values()]

    def add(self, key: str, node: "Node", line: int) -> None:
        """Add to a mapping what is at ``key``."""
        if key in self.pairs:
            self.repeated.append((key, line))
        self.pairs[key] = node


Path = tuple[str | int, ...]


def of_value(
    value: Any, lines: Mapping[Path, int] | None = None, path: Path = (), line: int = 0
) -> Node:
    """Return the node of a value of Python's, as JSON and TOML have them.

    ``lines`` has the lines of some values by their path; others have that of what they are in.

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
    """Raise TooDeepError for values that are nested too deeply, or for ever by an alias."""
    level, seen = [root], 0
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in parent.children]
        seen += len(level)
        if seen > MAX_NODES:
            break
        if not level:
            return
    raise TooDeepError(root.line)
