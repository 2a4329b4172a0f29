"""Reading the configuration: entries from flags, and all settings from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import deviceplugin as dp
from deviceplugin.kit.configuration import Place, list_of, of_text
from deviceplugin_generic.configuration import choices, grammar, smarter_file
from deviceplugin_generic.configuration.entries import Configuration


@dataclass(frozen=True)
class Devices:
    """The entries of the configuration, as a setting."""

    configuration: Configuration = field(default_factory=Configuration)
    texts: tuple[str, ...] = ()
    """The entries as they were written, for ``--print-config``."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the entries in the values of flags, or of a variable.

        Raises:
            ConfigError: All errors, a line each.
        """
        if isinstance(value, cls):
            return value
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            raise dp.ConfigError("a list of devices belongs here")
        if not all(text.strip() for text in texts):
            raise dp.ConfigError("is empty: write [] for no devices, or leave it out")
        roots = [of_text(text) for text in texts]
        entries = grammar.entries(place for root in roots for place in entries_in(root))
        if faults := [line for root in roots for line in root.faults.lines]:
            raise dp.ConfigError("\n".join(faults))
        return cls(Configuration(entries, is_given=True), tuple(texts))

    @staticmethod
    def schema() -> Mapping[str, Any]:
        """Return what stands in a file, for editors."""
        return list_of(grammar.ENTRY, nullable=True).schema

    def write(self) -> list[str]:
        """Return the values of flags, or the names of entries from a file."""
        rules = self.configuration.rules
        return [
            *(self.texts or (entry.name for entry in self.configuration.entries)),
            *(rule.pattern for rule in rules),
        ]


def items(place: Place) -> list[Place]:
    """Return the places in a list of devices; null is an empty one, as programs in Go write it."""
    return [] if place.kind == "nothing" else place.items()


def entries_in(flag: Place) -> list[Place]:
    """Return the places of the entries in the value of a flag, which is one or a list of them."""
    return items(flag) if flag.kind in {"list", "nothing"} else [flag]


def read(root: Place) -> Mapping[str, object]:
    """Return the settings in a file, including ``device``. Faults are collected.

    The keys of generic-device-plugin are accepted too, and so is a file of smarter-device-manager.
    """
    if root.kind == "list":
        found = smarter_file.read(root)
        return {"device": Devices(found.pop("configuration")), **found}
    settings: dict[str, object] = {"device": Devices(Configuration(place=str(root)))}
    names: dict[str, str] = {}
    for name, place in root.keys().items():
        key = choices.SETTINGS.get(name, name)
        if key in names:
            place.fault(f"means the same as {names[key]}, which is there too: keep one of them")
        elif key == "device":
            entries = grammar.entries(items(place))
            settings["device"] = Devices(Configuration(entries, is_given=True, place=str(place)))
        else:
            is_level = key == "log-level" and place.raw in choices.LEVELS
            settings[key] = choices.LEVELS[place.raw] if is_level else place
        names.setdefault(key, name)
    return settings
