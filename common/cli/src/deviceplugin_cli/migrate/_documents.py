"""The documents of the input, and what is looked up in them."""

import posixpath
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.documents.nodes import MalformedError, decoded
from deviceplugin._config.documents.yaml_nodes import plain
from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Setting
from deviceplugin_cli.migrate._accounts import Accounts, Origins

STANDARD_INPUT: Final = "-"
_MOST_BYTES: Final = 16 * 1024**2
_MOST_VALUES: Final = 500_000
"""Keys and values of a file. A DaemonSet has some 500."""


KUSTOMIZATION: Final = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
}
"""What a file of that name has, also where it does not say so."""
_IS_KUSTOMIZATION: Final = re.compile(r"(.*/)?[Kk]ustomization(\.ya?ml)?: document ")


@dataclass(frozen=True)
class Document:
    """A document of a file."""

    place: str
    """File and number, for messages."""
    content: Mapping[str, Any]
    number: int
    """The first step of all paths in it."""

    @property
    def kind(self) -> str:
        """Its Kubernetes kind; empty for Helm values."""
        return bounded(str(self.content.get("kind") or ""))

    @property
    def is_kustomization(self) -> bool:
        """Whether it names manifests for kustomize."""
        return KUSTOMIZATION["apiVersion"] == self.content.get("apiVersion")

    @property
    def file(self) -> str:
        """The path of its file."""
        return self.place.partition(": document ")[0]

    @property
    def title(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}".strip() or self.place

    @property
    def namespace(self) -> str:
        """Its namespace; empty if it does not say."""
        return str(mapping(self.content, "metadata").get("namespace") or "")

    @property
    def name(self) -> str:
        """Namespace and name of the object."""
        found = mapping(self.content, "metadata")
        names = [str(found[key]) for key in ("namespace", "name") if found.get(key)]
        return bounded("/".join(names))


class Input:
    """All documents of the input, and what becomes of their keys."""

    def __init__(
        self, contents: Sequence[tuple[str, Mapping[str, Any]]], lenient: Collection[str] = ()
    ) -> None:
        """``contents`` are places, for messages, and documents.

        A DaemonSet of a ``lenient`` place that is not whole, as a patch is, is skipped.
        """
        self.lenient = lenient
        self.skipped: list[str] = []
        """What was skipped, and why: a line each."""
        self.documents = [Document(*one, number) for number, one in enumerate(contents)]
        self.account = Accounts(contents)
        self.used: set[int] = set()
        """Documents that others name, as files of values."""
        self.found: list[Any] = []
        """What was found in them, each a ``Found``."""

    def add(
        self, place: str, content: Mapping[str, Any], origins: Origins | None = None
    ) -> Document:
        """Add a document that is in another one, or is made of others, which are its origins."""
        found = Document(place, content, self.account.add(place, content, origins))
        self.documents.append(found)
        return found

    def file(self, name: str, near: Document) -> Document | None:
        """Return a document without a kind, by its file's path; None if it is not there.

        The path is relative to the file of ``near``, or else the end of a file's path.
        """
        name = posixpath.normpath(name)
        files = {one.number: one.file for one in self.documents if "kind" not in one.content}
        exact = posixpath.normpath(posixpath.join(posixpath.dirname(near.file), name))
        end = PurePosixPath(name).parts
        ways = [
            [number for number, file in files.items() if posixpath.normpath(file) == exact],
            [
                number
                for number, file in files.items()
                if PurePosixPath(file).parts[-len(end) :] == end
            ],
        ]
        found = next((one for one in ways if one), [])
        return self.documents[found[0]] if found else None

    def find(self, kind: str, name: str, namespace: str = "") -> Document | None:
        """Return an object of the input by its name; None if it is not there.

        The namespace counts where both are known: rendered charts often leave it out.
        """
        for one in self.documents:
            found = mapping(one.content, "metadata")
            there = found.get("namespace")
            is_near = not there or not namespace or there == namespace
            if one.kind == kind and is_near and str(found.get("name")) == name:
                return one
        return None


def read_text(path: str) -> str:
    """Return the content of a file, or of standard input for ``-``; raise ``ConfigError``."""
    try:
        if path == STANDARD_INPUT:
            content = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path}: is longer than {_MOST_BYTES} bytes")
    try:
        return decoded(content)
    except MalformedError as error:
        raise ConfigError(f"{path}:{error.line}: {error}") from error


def documents(path: str, text: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return place and content of the documents in a text, and of those in a ``List``.

    Raises:
        ConfigError: The text is not valid, or a document is not a mapping.
    """
    found = [
        each
        for number, one in enumerate(_parsed(path, text), 1)
        for each in _of(f"{path}: document {number}", one)
    ]
    if not found:
        raise ConfigError(f"{path}: is empty")
    return found


def _of(place: str, content: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if content is None:
        return
    if not isinstance(content, Mapping):
        raise ConfigError(f"{place}: is not a mapping with keys")
    items = content.get("items")
    if content.get("kind") == "List" and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _of(f"{place}: items[{index}]", item)
    elif "kind" not in content and _IS_KUSTOMIZATION.match(place):
        yield place, {**KUSTOMIZATION, **content}
    else:
        yield place, content


def _parsed(path: str, text: str) -> list[Any]:
    try:
        return plain(text, _MOST_VALUES)
    except MalformedError as error:
        line = f":{error.line}" if error.line else ""
        template = "; a Helm template has to be rendered first" if "{{" in text else ""
        raise ConfigError(f"{path}{line}: {error}{template}") from error


def mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping at ``key``; an empty one if there is something else."""
    found = given.get(key)
    return found if isinstance(found, Mapping) else {}


def strings(given: Mapping[str, Any], place: str, key: str) -> list[str]:
    """Return the strings in the list at ``key``; none if it is absent."""
    return _list(given, place, key, str, "strings")


def items(given: Mapping[str, Any], place: str, key: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at ``key``; none if it is absent."""
    return _list(given, place, key, Mapping, "mappings")


def _list(given: Mapping[str, Any], place: str, key: str, kind: type[Any], what: str) -> list[Any]:
    found = given.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        raise Setting(f"{place}: {key}", found).wrong(f"a list of {what}")
    return found


def get(given: Mapping[str, Any], place: str, path: str, kind: type[Any]) -> Any:
    found: Any = given
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None:
        raise ConfigError(f"{place}: {path}: is missing")
    if not isinstance(found, kind):
        what = "a string" if kind is str else "a mapping"
        raise Setting(f"{place}: {path}", found).wrong(what)
    return found
