"""YAML, and JSON in it, as nodes or plain values. Imports PyYAML."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import yaml

from deviceplugin._config.documents.nodes import (
    MAX_NODES,
    DocumentNode,
    Kind,
    MalformedError,
    check_size,
    decoded,
    is_object,
    of_valid_json,
    too_deep,
    values_of_json,
)
from deviceplugin._config.documents.yaml_loader import MERGE, TAB, TAG, Loader, key_of

_KINDS: Final[dict[str, Kind]] = {
    f"{TAG}str": "text",
    f"{TAG}int": "integer",
    f"{TAG}float": "number",
    f"{TAG}bool": "boolean",
    f"{TAG}null": "nothing",
    f"{TAG}timestamp": "date",
}
_UNREADABLE: Final = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError)
"""What PyYAML raises, also for scalars that do not fit their tag."""
_NOT_HERE: Final = "are not allowed here"
"""How it ends its messages on keys and entries that cannot begin where they do."""


def compose(text: str | bytes) -> DocumentNode | None:
    """Return the outermost value of the only document that has one; None if there is none.

    JSON is read as JSON. What is not quite JSON, such as one with comments, is YAML.
    MalformedError if it is not valid, or if a second document has a value.
    """
    text = decoded(text)
    if _may_be_json(text):
        with suppress(json.JSONDecodeError):
            return of_valid_json(text)
    with _loading(text) as loader:
        found: list[DocumentNode] = []
        while loader.check_node():
            found.append(_Nodes(loader).node(loader.get_node()))
            check_size(found[-1])
        given = [one for one in found if one.kind != "nothing"]
        # One of Kubernetes is refused for what it is, by whoever reads it.
        if len(given) > 1 and not is_object(given[0]):
            problem = "a second document begins here: a configuration has one"
            raise MalformedError(problem, given[1].line)
        return next(iter([*given, *found]), None)


def plain(text: str | bytes, most: int = MAX_NODES) -> list[Any]:
    """Return all documents as Python objects. Keys are strings, as they are written.

    Values of JSON may follow one another. MalformedError if one is not valid, or has more than
    ``most`` keys and values. Those that aliases repeat count each time.
    """
    text = decoded(text)
    found: list[Any] = []
    if _may_be_json(text):
        with suppress(json.JSONDecodeError):
            found = values_of_json(text, most)
    if not found:
        with _loading(text, most) as loader:
            while loader.check_data():
                found.append(loader.get_data())
            check_size(found, most)
    return found


def _may_be_json(text: str) -> bool:
    return text.lstrip()[:1] in {"{", "["}


@contextmanager
def _loading(text: str, most: int = MAX_NODES) -> Iterator[Any]:
    """Yield a loader, and raise MalformedError for whatever PyYAML raises."""
    loader = None
    try:
        loader = Loader(text, most)
        yield loader
    except RecursionError as error:
        raise too_deep() from error
    except MalformedError:
        raise
    except _UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        if loader and mark and mark.line == loader.tabbed and problem.endswith(_NOT_HERE):
            problem = TAB
        raise MalformedError(problem, mark.line + 1 if mark else 0) from error


class _Nodes:
    """Makes nodes of PyYAML's nodes. An alias is the same node as its anchor."""

    def __init__(self, loader: Loader) -> None:
        self._loader: Any = loader
        self._made: dict[int, DocumentNode] = {}

    def node(self, given: Any) -> DocumentNode:
        if id(given) in self._made:
            return self._made[id(given)]
        line = given.start_mark.line + 1
        if isinstance(given, yaml.ScalarNode):
            node = self._made[id(given)] = self._scalar(given, line)
        elif isinstance(given, yaml.SequenceNode):
            node = self._made[id(given)] = DocumentNode("list", line)
            node.items = [self.node(item) for item in given.value]
        else:
            node = self._made[id(given)] = DocumentNode("mapping", line)
            self._fill(node, given)
        return node

    def _scalar(self, given: Any, line: int) -> DocumentNode:
        kind = _KINDS.get(given.tag, "other")
        try:
            value = self._loader.construct_object(given, deep=True)
        except _UNREADABLE:
            return DocumentNode(kind, line, given.value, readable=False)
        return DocumentNode(kind, line, given.value, value)

    def _fill(self, node: DocumentNode, given: Any) -> None:
        own = sum(key.tag != MERGE for key, _ in given.value)
        self._loader.flatten_mapping(given)
        merged = len(given.value) - own
        for key, value in given.value[:merged]:
            node.pairs[key_of(key)] = self.node(value)
        seen: set[str] = set()
        for key, value in given.value[merged:]:
            name = key_of(key)
            if name in seen:
                node.repeated.append((name, key.start_mark.line + 1))
            seen.add(name)
            node.pairs.pop(name, None)
            node.pairs[name] = self.node(value)
