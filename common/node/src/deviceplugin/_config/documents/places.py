"""Places in a document, and the value at each."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from deviceplugin._config.documents.faults import Faults, InvalidError, printable, suggestion
from deviceplugin._config.documents.nodes import (
    DocumentNode,
    Kind,
    MalformedError,
    check_size,
    decoded,
    is_object,
    of_json,
    of_value,
)
from deviceplugin._config.documents.reading import content
from deviceplugin.errors import ConfigError

LONGEST: Final = 1024**2
"""Bytes of a file that is read: all that a ConfigMap can have."""
_NO_YAML: Final = (
    "reading YAML needs PyYAML: pip install pyyaml, or write the file as .toml or .json"
)

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Readable(Protocol[_T_co]):
    """What can turn a place into a value."""

    @property
    def read(self) -> "Callable[[Place], _T_co]":
        """Return the value, or record the fault and raise InvalidError."""


class Place:
    """A value in a document, with its file, line and key."""

    __slots__ = ("faults", "key", "node")

    def __init__(self, faults: Faults, node: DocumentNode, key: str = "") -> None:
        self.faults = faults
        """All faults of the document."""
        self.key = key
        """The keys that lead here, as in ``devices[0].groups``."""
        self.node = node
        """The value itself, for the framework's use."""

    def __str__(self) -> str:
        return self.faults.place(self.node.line, self.key)

    @property
    def kind(self) -> Kind:
        """The type of the value: ``text``, ``integer``, ``list`` and so on."""
        return self.node.kind

    @property
    def raw(self) -> str:
        """A scalar as it is written, without quotes."""
        return self.node.raw

    @property
    def shown(self) -> str:
        """The value as messages show it: a string in quotes, a list as ``a list``."""
        if self.kind == "text":
            return repr(self.raw)
        if self.kind in {"list", "mapping"}:
            return f"a {self.kind}"
        return "null" if self.kind == "nothing" else self.raw

    def fault(self, problem: str) -> InvalidError:
        """Record a fault of this value. Return the error to raise if reading cannot go on."""
        return self.faults.add(self.node.line, self.key, problem)

    def wrong(self, wanted: str) -> InvalidError:
        """Record that the value is not what is ``wanted``. Return the error, as ``fault`` does."""
        return self.fault(f"{self.shown} is not {wanted}")

    def keys(
        self, known: Collection[str] | None = None, *, any_case: bool = False
    ) -> "dict[str, Place]":
        """Return the places in a mapping by key. If ``known`` is given, other keys are faults.

        With ``any_case``, a key that differs from a known one in upper and lower case is that one,
        and unknown keys whose values are null are ignored. InvalidError if it is not a mapping; the
        fault is recorded.
        """
        if self.kind != "mapping":
            raise self.wrong("a mapping with keys")
        found = {
            key: Place(self.faults, node, self._inner(key)) for key, node in self.node.pairs.items()
        }
        if any_case:
            found = _renamed(found, {key.lower(): key for key in known or ()})
        for key in [] if known is None else [key for key in found if key not in known]:
            place = found.pop(key)
            if not (any_case and place.kind == "nothing"):
                advice = "" if self.faults.terse else f": {suggestion(key, known or ())}"
                place.fault(f"unknown key{advice}")
        return found

    def within(self, key: str) -> "Place":
        """Return the place of ``key`` in a mapping, whether or not the key is there."""
        return Place(self.faults, self.node.pairs.get(key, self.node), self._inner(key))

    def without(self, *keys: str) -> "Place":
        """Return this mapping without some of its keys."""
        pairs = {key: node for key, node in self.node.pairs.items() if key not in keys}
        return Place(self.faults, replace(self.node, pairs=pairs), self.key)

    def _inner(self, key: str) -> str:
        shown = printable(key)
        return f"{self.key}.{shown}" if self.key else shown

    def items(self) -> "list[Place]":
        """Return the places in a list.

        InvalidError if it is not a list; the fault is recorded.
        """
        if self.kind != "list":
            raise self.wrong("a list")
        return [
            Place(self.faults, node, f"{self.key}[{number}]")
            for number, node in enumerate(self.node.items)
        ]

    def read(self, kind: Readable[_T]) -> _T:
        """Return the value, read as ``kind``.

        InvalidError if it is not one; the fault is recorded.
        """
        return kind.read(self)

    def take(self, kind: Readable[_T], instead: _T) -> _T:
        """Return the value, read as ``kind``, or record a fault and return ``instead``."""
        with suppress(InvalidError):
            return kind.read(self)
        return instead

    def plain(self) -> Any:
        """Return the value as a Python object. Keys are strings.

        InvalidError if a scalar is invalid in its language, such as the date 2001-99-99. The fault
        is recorded.
        """
        if self.kind == "mapping":
            return {key: place.plain() for key, place in self.keys().items()}
        if self.kind == "list":
            return [place.plain() for place in self.items()]
        if not self.node.readable:
            raise self.fault("not valid")
        return self.node.value


def _renamed(found: dict[str, Place], known: dict[str, str]) -> dict[str, Place]:
    """Return places by the known keys; the same key in two cases is a fault."""
    made: dict[str, Place] = {}
    for key, place in found.items():
        name = known.get(key.lower(), key)
        if name in made:
            place.fault(f"is the same key as {name}: keep one of them")
        made.setdefault(name, place)
    return made


def of_file(path: Path) -> Place:
    """Return the outermost place of a file in TOML, JSON or YAML, according to its extension.

    A file that is neither ``.toml`` nor ``.json`` is YAML, and needs PyYAML. An empty file, and one
    that only has null, is an empty mapping. Duplicate keys are faults, wherever they are. Keys at
    the top that begin with ``x-`` are ignored: they are for what anchors name.
    ConfigError if the file cannot be read, or is not valid. A pipe is not read, because it could
    not be read again.
    """
    faults = Faults(lambda line: f"{path}:{line}" if line else str(path))
    try:
        text = content(path, LONGEST)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}: a configuration is a text file") from error
    root = _root(path.suffix, text, faults)
    if root.kind == "nothing":
        return Place(faults, DocumentNode("mapping"))
    return _without_anchors(root)


def of_text(text: str, name: str = "", language: str = ".yaml", *, is_file: bool = False) -> Place:
    """Return the outermost place of a document in a string, which messages call ``name``.

    If it is that of a file, keys that begin with ``x-`` are ignored as there. ConfigError if it is
    not valid.
    """
    many = "\n" in text.strip()

    def locate(line: int) -> str:
        return ": ".join(part for part in (name, f"line {line}" if line and many else "") if part)

    root = _root(language, text, Faults(locate))
    return _without_anchors(root) if is_file else root


def _without_anchors(root: Place) -> Place:
    return root.without(*(key for key in root.node.pairs if key.startswith("x-")))


def refuse_object(root: Place) -> None:
    """Record that an object of Kubernetes is no configuration, and raise InvalidError."""
    if is_object(root.node):
        places = root.keys()
        kind, data = printable(places["kind"].raw), places.get("data")
        named = next(iter(data.node.pairs), "") if data else ""
        inside = f"data[{named!r}]" if named else "in a ConfigMap of it, or in its arguments"
        what = f"is a Kubernetes object, a {kind}: its file is {inside}; deviceplugin migrate"
        raise root.fault(f"{what} reads whole manifests of other plugins")


def plain_documents(text: str | bytes, name: str = "") -> list[Any]:
    """Return all documents in YAML or JSON as Python objects. Messages call them ``name``.

    Bytes are in UTF-8, UTF-16 or UTF-32. ConfigError if one is not valid, or has more values than
    are read.
    """
    from deviceplugin._config.documents.yaml_nodes import plain

    try:
        return plain(text)
    except MalformedError as error:
        line = f"line {error.line}" if error.line else ""
        raise ConfigError(": ".join(part for part in (name, line, str(error)) if part)) from error


def of_plain(value: Any, name: str = "") -> Place:
    """Return the outermost place of a value as ``json`` returns it; its key begins with ``name``.

    ConfigError if there are too many values, or they are nested too deeply.
    """
    try:
        check_size(value)
    except MalformedError as error:
        raise ConfigError(f"{name}: {error}" if name else str(error)) from error
    return Place(Faults(lambda _line: ""), of_value(value), name)


def _root(language: str, text: str | bytes, faults: Faults) -> Place:
    node = None
    try:
        text = decoded(text)
        if language == ".json":
            node = of_json(text)
        elif language == ".toml":
            from deviceplugin._config.documents.toml_nodes import compose

            node = compose(text)
        else:
            from deviceplugin._config.documents.yaml_nodes import compose

            node = compose(text)
    except ImportError:
        faults.add(0, "", _NO_YAML)
    except MalformedError as error:
        faults.add(error.line, "", f"not valid: {error}")
    faults.refuse()
    root = Place(faults, node or DocumentNode("mapping"))
    _note_repeated(root)
    return root


def _note_repeated(root: Place) -> None:
    """Record all duplicate keys as faults, also where nobody reads them."""
    waiting = deque([root])
    known: set[int] = set()
    while waiting:
        place = waiting.popleft()
        if id(place.node) in known:  # an alias is the same node as its anchor
            continue
        known.add(id(place.node))
        for key, line in place.node.repeated:
            root.faults.add(line, place.within(key).key, "given twice")
        waiting += place.keys().values() if place.kind == "mapping" else ()
        waiting += place.items() if place.kind == "list" else ()


@contextmanager
def reading(path: Path) -> Iterator[Place]:
    """Yield the outermost place of a file, and raise all recorded faults at the end.

    ConfigError has all faults, a line each, with file, line and key.
    """
    root = of_file(path)
    with suppress(InvalidError):
        yield root
    root.faults.refuse()
