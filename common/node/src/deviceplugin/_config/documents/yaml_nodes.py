"""YAML as nodes, or as plain values, by PyYAML."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from deviceplugin._config.documents.nodes import (
    MAX_NODES,
    DocumentNode,
    Kind,
    MalformedError,
    TooDeepError,
    check_size,
)

_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final[dict[str, Kind]] = {
    f"{_TAG}str": "text",
    f"{_TAG}int": "integer",
    f"{_TAG}float": "number",
    f"{_TAG}bool": "boolean",
    f"{_TAG}null": "nothing",
    f"{_TAG}timestamp": "date",
}
_UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError)
"""What PyYAML raises for scalars that do not fit their tag."""


def compose(text: str) -> DocumentNode | None:
    """Return the outermost value; None for a document without any.

    Raises:
        MalformedError: The document is not valid, ``<<`` merges what is not a mapping, or there is
            more than a limit allows.
        ImportError: PyYAML is not installed.
    """
    with _translated():
        from deviceplugin._config.documents.yaml_loader import Loader

        loader = Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        node = _Nodes(loader).node(root)
        check_size(node)
        return node


def plain(text: str, most: int = MAX_NODES) -> list[Any]:
    """Return all documents as Python objects, as ``yaml.safe_load_all`` does.

    They have at most ``most`` keys and values, including those that aliases repeat.

    Raises:
        MalformedError: A document is not valid, or there is more than a limit allows.
        ImportError: PyYAML is not installed.
    """
    with _translated():
        from deviceplugin._config.documents.yaml_loader import Loader

        loader: Any = Loader(text, most)
        found = []
        while loader.check_data():
            found.append(loader.get_data())
        check_size(found, most)
        return found


@contextmanager
def _translated() -> Iterator[None]:
    """Raise MalformedError for whatever PyYAML raises."""
    import yaml

    try:
        yield
    except RecursionError as error:
        raise TooDeepError from error
    except MalformedError:
        raise
    except (yaml.YAMLError, *_UNREADABLE) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise MalformedError(problem, mark.line + 1 if mark else 0) from error


class _Nodes:
    """Makes nodes of PyYAML's nodes. An alias is the same node as its anchor."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._made: dict[int, DocumentNode] = {}

    def node(self, given: Any) -> DocumentNode:
        if id(given) not in self._made:
            line = given.start_mark.line + 1
            kind: Kind = "list" if given.id == "sequence" else "mapping"
            if given.id == "scalar":
                self._made[id(given)] = self._scalar(given, line)
                return self._made[id(given)]
            node = self._made[id(given)] = DocumentNode(kind, line)
            if given.id == "sequence":
                node.items = [self.node(item) for item in given.value]
            else:
                self._fill(node, given)
        return self._made[id(given)]

    def _scalar(self, given: Any, line: int) -> DocumentNode:
        import yaml

        kind = _KINDS.get(given.tag, "other")
        try:
            value = self._loader.construct_object(given, deep=True)
        except (yaml.YAMLError, *_UNREADABLE):
            return DocumentNode(kind, line, given.value, readable=False)
        return DocumentNode(kind, line, given.value, value)

    def _fill(self, node: DocumentNode, given: Any) -> None:
        own = [pair for pair in given.value if pair[0].tag != f"{_TAG}merge"]
        self._loader.flatten_mapping(given)
        merged = len(given.value) - len(own)
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
