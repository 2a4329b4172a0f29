"""Places in a document: what stands there, and all that is wrong with it, collected."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from deviceplugin._config import words
from deviceplugin._config.contents import content
from deviceplugin._config.nodes import Kind, MalformedError, Node, of_value
from deviceplugin.errors import ConfigError

LONGEST: Final = 16 * 1024**2
"""Bytes of a file that is read. A ConfigMap has at most 1 MiB."""
_NO_YAML: Final = (
    "reading YAML needs PyYAML: pip install 'deviceplugin[yaml]', or write the file as .toml or "
    ".json"
)

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class InvalidError(Exception):
    """Something is wrong at a place, and has been noted there."""


class Readable(Protocol[_T_co]):
    """What makes a value of a place."""

    @property
    def read(self) -> "Callable[[Place], _T_co]":
        """Return the value; raise InvalidError once what is wrong has been noted."""


class Faults:
    """What is wrong with a document. ``locate`` says where a line is, for people."""

    def __init__(self, locate: Callable[[int], str]) -> None:
        self._locate = locate
        self._found: dict[tuple[int, str], None] = {}
        self.count = 0

    def place(self, line: int, key: str) -> str:
        """Return where in the document something is: ``FILE:LINE: KEY``."""
        return ": ".join(part for part in (self._locate(line), words.bounded(key)) if part)

    def add(self, line: int, key: str, problem: str) -> InvalidError:
        """Note what is wrong; the same once. What is very long, such as a value, is cut."""
        self.count += 1
        text = ": ".join(part for part in (self.place(line, key), words.bounded(problem)) if part)
        self._found.setdefault((line, text))
        return InvalidError(text)

    @property
    def lines(self) -> list[str]:
        """All that is wrong, in the order of the document."""
        return [text for _, text in sorted(self._found, key=lambda found: found[0])]

    def refuse(self) -> None:
        """Raise ConfigError if anything is wrong, with a line for each."""
        if self._found:
            raise ConfigError("\n".join(self.lines))


class Place:
    """A value in a document, with its file, line and key."""

    __slots__ = ("faults", "key", "node")

    def __init__(self, faults: Faults, node: Node, key: str = "") -> None:
        self.faults = faults
        """All that is wrong with the document."""
        self.key = key
        """The keys that lead here, as in ``devices[0].groups``."""
        self.node = node
        """The value itself, for the framework."""

    def __str__(self) -> str:
        return self.faults.place(self.node.line, self.key)

    @property
    def kind(self) -> Kind:
        """What stands here: ``text``, ``integer``, ``list`` and so on."""
        return self.node.kind

    @property
    def raw(self) -> str:
        """A scalar as it is written, without quotes."""
        return self.node.raw

    @property
    def shown(self) -> str:
        """The value as messages show it: a text in quotes, a list as ``a list``."""
        if self.kind == "text":
            return repr(self.raw)
        if self.kind in {"list", "mapping"}:
            return f"a {self.kind}"
        return "nothing" if self.kind == "nothing" else self.raw

    def fault(self, problem: str) -> InvalidError:
        """Note what is wrong with this value; return what to raise where one cannot go on."""
        return self.faults.add(self.node.line, self.key, problem)

    def wrong(self, wanted: str) -> InvalidError:
        """Note that the value is not what is ``wanted``."""
        return self.fault(f"{self.shown} is not {wanted}")

    def keys(self, known: Collection[str] | None = None) -> "dict[str, Place]":
        """Return the places of a mapping; keys other than the ``known`` ones are faults.

        Raises:
            InvalidError: It is not a mapping, which has been noted.
        """
        if self.kind != "mapping":
            raise self.wrong("a mapping with keys")
        found = {
            key: Place(self.faults, node, self._inner(key)) for key, node in self.node.pairs.items()
        }
        for key in [] if known is None else [key for key in found if key not in known]:
            found.pop(key).fault(f"unknown key: {words.suggestion(key, known or ())}")
        return found

    def within(self, key: str) -> "Place":
        """Return the place that ``key`` has, or would have, in a mapping."""
        return Place(self.faults, self.node.pairs.get(key, self.node), self._inner(key))

    def _inner(self, key: str) -> str:
        shown = key if key.isprintable() else repr(key)
        return f"{self.key}.{shown}" if self.key else shown

    def items(self) -> "list[Place]":
        """Return the places of a list.

        Raises:
            InvalidError: It is not a list, which has been noted.
        """
        if self.kind != "list":
            raise self.wrong("a list")
        return [
            Place(self.faults, node, f"{self.key}[{number}]")
            for number, node in enumerate(self.node.items)
        ]

    def read(self, kind: Readable[_T]) -> _T:
        """Return the value as ``kind`` has it.

        Raises:
            InvalidError: It is not one, which has been noted.
        """
        return kind.read(self)

    def take(self, kind: Readable[_T], instead: _T) -> _T:
        """Return the value as ``kind`` has it, or ``instead`` once it has been noted as wrong."""
        with suppress(InvalidError):
            return kind.read(self)
        return instead

    def plain(self) -> Any:
        """Return whatever it is, as Python has it. Keys are texts.

        Raises:
            InvalidError: A scalar is not what its language takes it for, such as 2001-99-99.
        """
        if self.kind == "mapping":
            return {key: place.plain() for key, place in self.keys().items()}
        if self.kind == "list":
            return [place.plain() for place in self.items()]
        if not self.node.readable:
            raise self.fault("not valid")
        return self.node.value


def of_file(path: Path) -> Place:
    """Return the outermost place of a file: TOML, JSON or YAML, as the extension says.

    YAML is what is neither ``.toml`` nor ``.json``, and needs PyYAML. Of a file that says nothing,
    it is an empty mapping. Keys that are given twice are noted, wherever they are.

    Raises:
        ConfigError: The file cannot be read, or is not valid. A pipe cannot, because its content
            could not be read again.
    """
    faults = Faults(lambda line: f"{path}:{line}" if line else str(path))
    try:
        text = content(path, LONGEST).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not valid: {error.reason} of UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}: a configuration is a file of text") from error
    return _root(path.suffix, text, faults)


def of_text(text: str, name: str = "", language: str = ".yaml") -> Place:
    """Return the outermost place of a text, which messages call ``name``.

    Raises:
        ConfigError: It is not valid.
    """
    many = "\n" in text.strip()

    def locate(line: int) -> str:
        return ": ".join(part for part in (name, f"line {line}" if line and many else "") if part)

    return _root(language, text, Faults(locate))


def of_plain(value: Any, name: str = "") -> Place:
    """Return the outermost place of a value as ``json`` gives it; ``name`` begins its key."""
    try:
        return Place(Faults(lambda _line: ""), of_value(value), name)
    except MalformedError as error:
        raise ConfigError(f"{name}: {error}" if name else str(error)) from error


def _root(language: str, text: str, faults: Faults) -> Place:
    node = None
    try:
        if language == ".json":
            from deviceplugin._config import json_nodes

            node = json_nodes.compose(text)
        elif language == ".toml":
            from deviceplugin._config import toml_nodes

            node = toml_nodes.compose(text)
        else:
            from deviceplugin._config import yaml_nodes

            node = yaml_nodes.compose(text)
    except ImportError:
        faults.add(0, "", _NO_YAML)
    except MalformedError as error:
        faults.add(error.line, "", f"not valid: {error}")
    faults.refuse()
    root = Place(faults, node or Node("mapping"))
    _note_repeated(root)
    return root


def _note_repeated(root: Place) -> None:
    """Have all keys noted that are given twice, also where nobody looks for them."""
    waiting = deque([root])
    known: set[int] = set()
    while waiting:
        place = waiting.popleft()
        if id(place.node) in known:  # an alias is the same node again
            continue
        known.add(id(place.node))
        for key, line in place.node.repeated:
            root.faults.add(line, place.within(key).key, "given twice")
        waiting += place.keys().values() if place.kind == "mapping" else ()
        waiting += place.items() if place.kind == "list" else ()


@contextmanager
def reading(path: Path) -> Iterator[Place]:
    """Give the outermost place of a file; in the end all that was noted is refused at once.

    Raises:
        ConfigError: All that is wrong, a line each, with file, line and key.
    """
    root = of_file(path)
    with suppress(InvalidError):
        yield root
    root.faults.refuse()
