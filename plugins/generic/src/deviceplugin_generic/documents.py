"""Reading the configuration: entries from texts of flags, and all settings from a file."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import deviceplugin as dp
from deviceplugin_generic import grammar, smarter, words
from deviceplugin_generic.cursors import Cursor, Text
from deviceplugin_generic.entries import Configuration
from deviceplugin_generic.toml import Toml

Problem = Callable[[str, object], str]
"""What is wrong with the value of a setting; empty if nothing is."""


@dataclass(frozen=True)
class Devices:
    """The entries of the configuration, as a setting."""

    configuration: Configuration = field(default_factory=Configuration)
    texts: tuple[str, ...] = ()
    """As they were given, for ``--print-config``."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the entries in the texts of flags, or in that of a variable.

        Raises:
            ConfigError: All that is wrong, a line each.
        """
        if isinstance(value, cls):
            return value
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            raise dp.ConfigError("a list of devices belongs here")
        cursors: list[Cursor] = []
        documents = [Text(text) for text in texts]
        for document in documents:
            root = document.root()
            cursors += [] if root is None else root.items() if root.kind == "list" else [root]
        entries = grammar.entries(cursors)
        _raise([fault for document in documents for fault in document.faults])
        return cls(Configuration(entries), tuple(texts))

    def write(self) -> list[str]:
        """Return the texts of flags, or the names of entries that are from a file."""
        rules = self.configuration.rules
        return [
            *(self.texts or (entry.name for entry in self.configuration.entries)),
            *(rule.pattern for rule in rules),
        ]


def version(path: Path) -> tuple[int, ...] | None:
    """Return what tells this version of a file from any other; None where there is none."""
    try:
        return _version(path.stat())
    except OSError:
        return None


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read(path: Path, problem: Problem = lambda _name, _value: "") -> dict[str, Any]:
    """Return the settings in a YAML, JSON or TOML file, ``device`` among them.

    Known are the keys of generic-device-plugin too, and the whole file may be one of
    smarter-device-manager. ``problem`` judges the values of other settings.

    Raises:
        ConfigError: All that is wrong, a line each, with file, line and key.
    """
    try:
        with path.open("rb") as file:
            seen = _version(os.fstat(file.fileno()))
            text = file.read().decode()
    except OSError as error:
        raise dp.ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise dp.ConfigError(f"{path}: not valid: {error.reason}") from error
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # only blanks in JSON, and refused by YAML
    settings = read_text(text, path, problem)
    given = settings["device"]
    configuration = replace(given.configuration, version=seen)
    return settings | {"device": replace(given, configuration=configuration)}


def read_text(text: str, path: Path, problem: Problem = lambda _name, _value: "") -> dict[str, Any]:
    """Return the same from the text of the file at ``path``."""
    document = (Toml if path.suffix == ".toml" else Text)(text, str(path))
    root = document.root()
    _raise(document.faults)
    if root is None:
        return {"device": Devices(Configuration(source=path, place=str(path)))}
    settings = smarter.read(root) if root.kind == "list" else _settings(root, problem)
    _raise(document.faults)
    configuration = replace(settings.pop("configuration"), source=path)
    return {"device": Devices(configuration), **settings}


def _settings(root: Cursor, problem: Problem) -> dict[str, Any]:
    settings: dict[str, Any] = {"configuration": Configuration(place=root.place)}
    names: dict[str, str] = {}
    for name, cursor in root.mapping().items():
        key = words.SETTINGS.get(name, name)
        if key in names:
            cursor.fault(f"means the same as {names[key]}, which is there too: keep one of them")
        elif key == "device":
            entries = grammar.entries(cursor.items())
            settings["configuration"] = Configuration(entries, place=cursor.place)
        else:
            settings[key] = _setting(key, cursor, problem)
        names.setdefault(key, name)
    return settings


def _setting(key: str, cursor: Cursor, problem: Problem) -> object:
    value: object = cursor.anything()
    if key == "log-level" and isinstance(value, str):
        value = words.LEVELS.get(value, value)
    is_valid = value is not None or cursor.kind == "null"  # or it has been told already
    for line in problem(key, value).splitlines() if is_valid else ():
        cursor.fault(line)
    return value


def _raise(faults: list[str]) -> None:
    if faults:
        raise dp.ConfigError("\n".join(faults))
