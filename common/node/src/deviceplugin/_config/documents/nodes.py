"""The values of a document in YAML, JSON or TOML, each with its line; and reading those of JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Kind = Literal[
    "text", "integer", "number", "boolean", "date", "nothing", "list", "mapping", "other"
]
MAX_DEPTH: Final = 200
"""Levels of values within values."""
MAX_NODES: Final = 100_000
"""Keys and values of a document, including those that aliases repeat. Each takes 1 KB for a while,
and a plugin has some 100 MB. A ConfigMap of 1 MiB has room for about as many."""
_KINDS: Final[Mapping[type, Kind]] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "nothing",
}
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
"""The tokens of a valid document."""
_NEXT: Final = re.compile(r"[^ \t\r\n]|$")


class MalformedError(ValueError):
    """A document is not valid in its language. ``line`` counts from 1, and 0 means unknown."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(" ".join(problem.split()))
        self.line = line


def decoded(text: str | bytes) -> str:
    """Return a document as a string. Bytes are in UTF-8, UTF-16 or UTF-32.

    A byte order mark may be there, and is removed. MalformedError if they are in none of them.
    """
    try:
        made = text if isinstance(text, str) else text.decode(json.detect_encoding(text))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise MalformedError(f"{error.reason} of {error.encoding.upper()}", line) from error
    return made.removeprefix("\ufeff")


def too_deep(line: int = 0) -> MalformedError:
    return MalformedError("nested too deeply", line)


def too_many(line: int = 0, most: int = MAX_NODES) -> MalformedError:
    return MalformedError(f"more than {most} keys and values", line)


@dataclass(eq=False, repr=False, slots=True)
class DocumentNode:
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
    items: "list[DocumentNode]" = field(default_factory=list)
    pairs: "dict[str, DocumentNode]" = field(default_factory=dict)
    repeated: "list[tuple[str, int]]" = field(default_factory=list)
    """Duplicate keys, with their lines."""

    def add(self, key: str, node: "DocumentNode", line: int) -> None:
        if key in self.pairs:
            self.repeated.append((key, line))
        self.pairs[key] = node


def is_object(node: DocumentNode) -> bool:
    """Return whether a document is an object of Kubernetes."""
    return {"apiVersion", "kind"} <= node.pairs.keys()


Path = tuple[str | int, ...]


def of_value(
    value: Any, lines: Mapping[Path, int] | None = None, path: Path = (), line: int = 0
) -> DocumentNode:
    """Return the node of a Python object, such as JSON and TOML give.

    ``lines`` has the lines of some values by path. Another value has the line of its container.
    """
    line = (lines or {}).get(path, line)
    if isinstance(value, Mapping):
        node = DocumentNode("mapping", line)
        for key, inner in value.items():
            node.add(str(key), of_value(inner, lines, (*path, str(key)), line), line)
        return node
    if isinstance(value, list | tuple):
        items = [of_value(inner, lines, (*path, index), line) for index, inner in enumerate(value)]
        return DocumentNode("list", line, items=items)
    raw = str(value).lower() if isinstance(value, bool) else str(value)
    return DocumentNode(_KINDS.get(type(value), "date"), line, raw, value)


def _inner(value: Any) -> list[Any]:
    """Return the keys and values in a node, or in a mapping or list of Python's."""
    if isinstance(value, DocumentNode):
        return [*value.items, *value.pairs, *value.pairs.values()]
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return [*value] if isinstance(value, list | tuple) else []


def check_size(root: Any, most: int = MAX_NODES) -> None:
    """Raise MalformedError if values are too many, or nested too deeply, or endlessly by an alias.

    ``root`` is a node, or a value of Python's. What aliases repeat counts each time.
    """
    sizes: dict[int, tuple[int, int]] = {}

    def size(value: Any) -> tuple[int, int]:
        if id(value) not in sizes:
            sizes[id(value)] = 0, MAX_DEPTH + 1  # found again in itself
            found = [size(child) for child in _inner(value)]
            values = len(found) + sum(count for count, _ in found)
            sizes[id(value)] = values, 1 + max((depth for _, depth in found), default=-1)
        return sizes[id(value)]

    line = root.line if isinstance(root, DocumentNode) else 0
    try:
        values, depth = size(root)
    except RecursionError as error:
        raise too_deep(line) from error
    if depth > MAX_DEPTH:
        raise too_deep(line)
    if values > most:
        raise too_many(line, most)


def of_json(text: str) -> DocumentNode | None:
    """Return the outermost value of JSON; None for an empty document; MalformedError if invalid."""
    try:
        return of_valid_json(text) if text.strip() else None
    except json.JSONDecodeError as error:
        raise MalformedError(error.msg, error.lineno) from error


def of_valid_json(text: str) -> DocumentNode:
    """Return the outermost value of JSON. JSONDecodeError if it is not JSON.

    MalformedError if it is, and there are too many values, or they are nested too deeply.
    """
    with _decoding():
        document = json.loads(text)
    check_size(document)
    tokens = _tokens(text)
    root = _node(*next(tokens), tokens)
    assert next(tokens, None) is None  # or the tokens are not json's
    return root


def values_of_json(text: str, most: int) -> list[Any]:
    """Return all values of JSON, which may follow one another; errors as ``of_valid_json``."""
    decoder, found, at = json.JSONDecoder(), list[Any](), 0
    text = text.strip()
    with _decoding():
        while at < len(text) and len(found) <= most:
            value, end = decoder.raw_decode(text, at)
            found.append(value)
            at = next(_NEXT.finditer(text, end)).start()
    check_size(found, most)
    return found


@contextmanager
def _decoding() -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of more digits than Python accepts
        raise MalformedError(str(error)) from error
    except RecursionError as error:
        raise too_deep() from error


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield each token with its line."""
    line, end = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", end, found.start())
        end = found.start()
        yield found[0], line


def _node(word: str, line: int, tokens: Iterator[tuple[str, int]]) -> DocumentNode:
    if word == "{":
        node = DocumentNode("mapping", line)
        for key, at in _until("}", tokens):
            next(tokens)  # the colon
            node.add(json.loads(key), _node(*next(tokens), tokens), at)
        return node
    if word == "[":
        items = [_node(*first, tokens) for first in _until("]", tokens)]
        return DocumentNode("list", line, items=items)
    value: Any = json.loads(word)
    node = of_value(value, line=line)
    node.raw = value if isinstance(value, str) else word
    return node


def _until(end: str, tokens: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield the first token of each value, or of each key and value, before ``end``."""
    while (token := next(tokens))[0] != end:
        if token[0] != ",":
            yield token
