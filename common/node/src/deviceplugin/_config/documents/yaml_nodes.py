"""YAML as nodes or plain values, with limits on what a short text asks for. Imports PyYAML."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import yaml

from deviceplugin._config.documents.nodes import (
    MAX_NODES,
    DocumentNode,
    Kind,
    MalformedError,
    check_size,
    too_deep,
    too_many,
)

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"
"""The kind of ``<<``."""
MOST_MERGED: Final = 10_000
"""Keys of a document that ``<<`` merges."""
_KINDS: Final[dict[str, Kind]] = {
    f"{_TAG}str": "text",
    f"{_TAG}int": "integer",
    f"{_TAG}float": "number",
    f"{_TAG}bool": "boolean",
    f"{_TAG}null": "nothing",
    f"{_TAG}timestamp": "date",
}
_UNREADABLE: Final = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError)
"""What PyYAML raises, also for scalars that do not fit their tag."""


def compose(text: str) -> DocumentNode | None:
    """Return the outermost value; None for a document without any; MalformedError if not valid."""
    with _translated():
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        node = _Nodes(loader).node(root)
        check_size(node)
        return node


def plain(text: str, most: int = MAX_NODES) -> list[Any]:
    """Return all documents as Python objects, as ``yaml.safe_load_all`` does.

    MalformedError if one is not valid, or has more than ``most`` keys and values. Those that
    aliases repeat count each time.
    """
    with _translated():
        loader: Any = _Loader(text, most)
        found = []
        while loader.check_data():
            found.append(loader.get_data())
        check_size(found, most)
        return found


@contextmanager
def _translated() -> Iterator[None]:
    """Raise MalformedError for whatever PyYAML raises."""
    try:
        yield
    except RecursionError as error:
        raise too_deep() from error
    except MalformedError:
        raise
    except _UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise MalformedError(problem, mark.line + 1 if mark else 0) from error


class _Loader(yaml.SafeLoader):
    """Loads documents of at most ``most`` keys and values in all, before aliases repeat them."""

    def __init__(self, text: str, most: int = MAX_NODES) -> None:
        super().__init__(text)
        self._most = most
        self._composed = self._merged = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; PyYAML calls this for each."""
        self._composed += 1
        if self._composed > self._most:
            raise too_many(self.line + 1, self._most)
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: Any) -> None:
        """Put what ``<<`` merges before the keys of ``node`` itself, each key once.

        PyYAML's own repeats a key for each mapping on the way, so that a dozen lines fill memory.
        """
        bases = [base for key, value in node.value if key.tag == _MERGE for base in _bases(value)]
        node.value = [pair for pair in node.value if pair[0].tag != _MERGE]
        merged: dict[Any, Any] = {}
        for base in bases:
            self.flatten_mapping(base)
            merged |= {_identity(pair[0]): pair for pair in base.value}
        self._merged += len(merged)
        if self._merged > MOST_MERGED:
            problem = f"<< merges more than {MOST_MERGED} keys"
            raise MalformedError(problem, node.start_mark.line + 1)
        node.value = [*merged.values(), *node.value]


def _bases(value: Any) -> list[Any]:
    """Return the mappings of a ``<<``. Of one key in several, the last counts here."""
    found = value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]
    for one in found:
        if not isinstance(one, yaml.MappingNode):
            problem = f"expected a mapping or list of mappings for merging, but found {one.id}"
            raise MalformedError(problem, one.start_mark.line + 1)
    return found


def _identity(key: Any) -> object:
    return (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)


class _Nodes:
    """Makes nodes of PyYAML's nodes. An alias is the same node as its anchor."""

    def __init__(self, loader: _Loader) -> None:
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
        own = sum(key.tag != _MERGE for key, _ in given.value)
        self._loader.flatten_mapping(given)
        merged = len(given.value) - own
        for key, value in given.value[:merged]:
            node.pairs[self._key(key)] = self.node(value)
        seen: set[str] = set()
        for key, value in given.value[merged:]:
            name = self._key(key)
            if name in seen:
                node.repeated.append((name, key.start_mark.line + 1))
            seen.add(name)
            node.pairs.pop(name, None)
            node.pairs[name] = self.node(value)

    @staticmethod
    def _key(key: Any) -> str:
        if key.id != "scalar":
            raise MalformedError("a key must be a string", key.start_mark.line + 1)
        return str(key.value)
