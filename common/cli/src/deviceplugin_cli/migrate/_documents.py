"""Reading the documents of a manifest."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.documents.nodes import MalformedError
from deviceplugin._config.documents.yaml_nodes import plain
from deviceplugin.errors import ConfigError

STANDARD_INPUT: Final = "-"
_MOST_BYTES: Final = 16 * 1024**2
_MOST_VALUES: Final = 500_000
"""Keys and values of a file. A DaemonSet has some 500."""
_NO_YAML: Final = "reading manifests needs PyYAML: pip install 'deviceplugin[yaml]'"


@dataclass(frozen=True)
class Document:
    """A document of a file."""

    place: str
    """File and number, for messages."""
    content: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its Kubernetes kind; empty for Helm values."""
        return str(self.content.get("kind", ""))

    @property
    def name(self) -> str:
        """Namespace and name of the object."""
        metadata = self.content.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        parts = (metadata.get("namespace"), metadata.get("name"))
        return "/".join(str(part) for part in parts if part)


def read_text(path: str) -> str:
    """Return the content of a file, or of standard input for ``-``.

    Raises:
        ConfigError: It cannot be read, is too long, or is not UTF-8.
    """
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
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8: byte {error.start}") from error


def documents(path: str, text: str) -> list[Document]:
    """Return the documents in a text. A ``List`` counts as the documents in it.

    Raises:
        ConfigError: It is not valid YAML, has a document that is not a mapping, or has none.
    """
    found = [
        each
        for number, one in enumerate(_parsed(path, text), 1)
        for each in _of(f"{path}: document {number}", one)
    ]
    if not found:
        raise ConfigError(f"{path}: is empty")
    return found


def _of(place: str, content: Any) -> Iterator[Document]:
    if content is None:
        return
    if not isinstance(content, Mapping):
        raise ConfigError(f"{place}: is not a mapping with keys")
    items = content.get("items")
    if content.get("kind") == "List" and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _of(f"{place}: items[{index}]", item)
    else:
        yield Document(place, content)


def _parsed(path: str, text: str) -> list[Any]:
    try:
        return plain(text, _MOST_VALUES)
    except ImportError as error:
        raise ConfigError(f"{path}: {_NO_YAML}") from error
    except MalformedError as error:
        line = f":{error.line}" if error.line else ""
        template = "; a Helm template has to be rendered first" if "{{" in text else ""
        raise ConfigError(f"{path}{line}: {error}{template}") from error
