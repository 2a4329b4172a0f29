"""Reading the configuration: entries from texts of flags, and all settings from a file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import deviceplugin as dp
from deviceplugin_generic import grammar, words
from deviceplugin_generic.cursors import Cursor, Text
from deviceplugin_generic.entries import MAX_COUNT, Configuration, Rule

SMARTER_DOMAIN: Final = "smarter-devices"
_LEVELS: Final = {"all": "debug", "warn": "warning", "none": "error"}
"""Levels of the log as generic-device-plugin has them."""


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


def read(path: Path) -> Mapping[str, Any]:
    """Return the settings in a YAML or JSON file, ``device`` among them.

    Known are the keys of generic-device-plugin too, and the whole file may be one of
    smarter-device-manager.

    Raises:
        ConfigError: All that is wrong, a line each, with file, line and key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise dp.ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise dp.ConfigError(f"{path}: not valid: {error.reason}") from error
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # only blanks in JSON, and refused by YAML
    return read_text(text, path)


def read_text(text: str, path: Path) -> Mapping[str, Any]:
    """Return the same from the text of the file at ``path``."""
    document = Text(text, str(path))
    root = document.root()
    _raise(document.faults)
    if root is None:
        return {}
    settings = _smarter(root, path) if root.kind == "list" else _settings(root, path)
    _raise(document.faults)
    return settings


def _settings(root: Cursor, path: Path) -> dict[str, Any]:
    cursors = root.mapping()
    settings: dict[str, Any] = {}
    for name, cursor in cursors.items():
        key = words.SETTINGS.get(name, name)
        if key in settings:
            cursor.fault(f"given twice, also as {key}")
        elif key == "device":
            given = cursor.items()
            entries = grammar.entries(given)
            settings[key] = Devices(Configuration(entries, source=path))
        else:
            settings[key] = cursor.anything()
    level = settings.get("log-level")
    if isinstance(level, str):
        settings["log-level"] = _LEVELS.get(level, level)
    settings.setdefault("device", Devices(Configuration(source=path)))
    return settings


def _smarter(root: Cursor, path: Path) -> dict[str, Any]:
    rules = [_rule(cursor) for cursor in root.items()]
    found = tuple(rule for rule in rules if rule is not None)
    return {"domain": SMARTER_DOMAIN, "device": Devices(Configuration((), found, path))}


def _rule(cursor: Cursor) -> Rule | None:
    keys = cursor.mapping(words.RULE)
    for key in words.RULE:
        if cursor.kind == "mapping" and key not in keys:
            cursor.fault(f"needs {key}")
    pattern = keys["devicematch"].text() if "devicematch" in keys else None
    limit = keys.get("nummaxdevices")
    count = limit.number(most=MAX_COUNT) if limit else None
    if pattern is None:
        return None
    if pattern == "nvidia-gpu":
        cursor.fault("nvidia-gpu is not for this plugin: use the gpu plugin")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        keys["devicematch"].fault(f"{pattern!r} is no regular expression: {error}")
    return Rule(pattern, count or 0)


def _raise(faults: list[str]) -> None:
    if faults:
        raise dp.ConfigError("\n".join(faults))
