"""An entry of a kubeconfig file, with messages that name it."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deviceplugin._config.documents.reading import content
from deviceplugin.apiserver._credentials import MOST_BYTES
from deviceplugin.errors import ConfigError


class Entry:
    """A mapping at ``place``. Paths in it are relative to ``folder``.

    Every method raises ``ConfigError`` for what is not as it should be.
    """

    def __init__(self, place: str, folder: Path, values: Mapping[str, Any]) -> None:
        self._place = place
        self.folder = folder
        self._values = values

    def __str__(self) -> str:
        return self._place

    def text(self, key: str) -> str:
        """Return the string at ``key``; an empty one if there is none."""
        value = self._values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigError(f"{self._place}: {key}: is not a string")
        return value

    def required(self, key: str) -> str:
        """Return the string at ``key``."""
        value = self.text(key)
        if not value:
            raise ConfigError(f"{self._place}: {key}: is missing")
        return value

    def flag(self, key: str) -> bool:
        """Return whether ``key`` is true."""
        value = self._values.get(key) or False
        if not isinstance(value, bool):
            raise ConfigError(f"{self._place}: {key}: is not true or false")
        return value

    def path(self, key: str) -> Path | None:
        """Return the path at ``key``."""
        name = self.text(key)
        return self.folder / name if name else None

    def strings(self, key: str) -> list[str]:
        """Return the list of strings at ``key``."""
        value = self._values.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{self._place}: {key}: is not a list of strings")
        return value

    def entry(self, key: str) -> "Entry | None":
        """Return the mapping at ``key``."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ConfigError(f"{self._place}: {key}: is not a mapping")
        return Entry(f"{self._place}: {key}", self.folder, value)

    def required_entry(self, key: str) -> "Entry":
        """Return the mapping at ``key``, named by the ``name`` beside it."""
        found = self.entry(key)
        if found is None:
            raise ConfigError(f"{self._place}: {key}: is missing")
        return found

    def entries(self, key: str) -> "list[Entry]":
        """Return the mappings in the list at ``key``, named by their ``name``."""
        value = self._values.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ConfigError(f"{self._place}: {key}: is not a list of mappings")
        return [
            Entry(f"{self._place}: {key}[{item.get('name', number)}]", self.folder, item)
            for number, item in enumerate(value)
        ]

    def any(self, key: str) -> Any:
        """Return whatever is at ``key``."""
        return self._values.get(key)

    def pem(self, key: str) -> str:
        """Return certificates or a key: in base64 at ``KEY-data``, or in the file at ``KEY``."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode(data, validate=True).decode("ascii")
            except ValueError:
                raise ConfigError(f"{self._place}: {key}-data: is not base64 of a PEM") from None
        path = self.path(key)
        if path is None:
            return ""
        try:
            return content(path, MOST_BYTES).decode("ascii")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._place}: {key}: {error}") from error

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise ``ConfigError`` if one of the keys is there, with the reason."""
        for key, reason in reasons.items():
            if self._values.get(key):
                raise ConfigError(f"{self._place}: {key}: {reason}")
