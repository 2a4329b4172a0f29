"""Reading the configuration, also that of peers: entries from flags, and settings from a file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import deviceplugin as dp
from deviceplugin.kit.configuration import (
    Place,
    bounded,
    list_of,
    matches,
    of_text,
    refuse,
    resource_name_problem,
)
from deviceplugin.kit.environment import variable
from deviceplugin_generic.configuration import entry_lists, grammar
from deviceplugin_generic.configuration.entries import (
    DOMAIN,
    LEVELS,
    LONGEST_DOMAIN,
    RESERVED,
    SETTINGS,
    Configuration,
    Entry,
)
from deviceplugin_generic.configuration.templates import RESOURCE

SMARTER_DOMAIN: Final = "smarter-devices"
GPUS: Final = "nvidia-gpu"
"""This is not a pattern in such a file, but means the GPUs of a Jetson."""
_FLAGS: Final = {f"--{name}": f"--{SETTINGS[name]}" for name in ("listen", "plugin-directory")}
_LEVEL: Final = "--log-level"


@dataclass(frozen=True)
class Domains:
    """The domains. Each has all resources."""

    names: tuple[str, ...] = ("devic.es",)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the domains in a comma-separated string, or in a list of such strings."""
        texts: list[Any] = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise dp.ConfigError("a domain, or a list of domains, belongs here")
        names = [name.strip() for text in texts for name in text.split(",")]
        problems = [
            f"{name!r} is not lower-case labels with dots between"
            for name in names
            if not matches(name, DOMAIN)
        ]
        problems += [
            f"{name!r}: {problem}"
            for name in names
            if matches(name, DOMAIN) and (problem := resource_name_problem(f"{name}/x"))
        ]
        twice = dict.fromkeys(name for name in names if names.count(name) > 1)
        problems += [f"{name!r} is given twice" for name in twice]
        if problems:
            raise dp.ConfigError("\n".join(map(bounded, problems)))
        return cls(tuple(names))

    @staticmethod
    def schema() -> Mapping[str, Any]:
        """Return what stands in a file, for editors."""
        domain = {
            "type": "string",
            "pattern": DOMAIN,
            "maxLength": LONGEST_DOMAIN,
            "not": {"pattern": RESERVED},
            "description": "Domain of all resource names, or a list of domains",
        }
        return {"anyOf": [domain, {"type": "array", "items": domain, "minItems": 1}]}

    def write(self) -> str | list[str]:
        """Return one domain as a string, and several as a list."""
        return self.names[0] if len(self.names) == 1 else [*self.names]

    def under_each(self, devices: Iterable[dp.Device]) -> Iterator[dp.Device]:
        """Yield devices of resources of the first domain, each also under all other domains."""
        for device in devices:
            yield _named(device)
            name = device.resource.partition("/")[2]
            for other in self.names[1:]:
                yield _named(replace(device, resource=f"{other}/{name}"))


def _named(device: dp.Device) -> dp.Device:
    """Return the device with the name of its resource in the names of its variables."""
    if not any(RESOURCE in name for name in device.envs):
        return device
    own = variable(device.resource)
    return replace(device, envs={k.replace(RESOURCE, own): v for k, v in device.envs.items()})


DEFAULT_DOMAINS: Final = Domains()


def smarter_read(root: Place) -> dict[str, Any]:
    """Return the domain and the configuration in a file. Faults are collected."""
    places = root.items()
    rules = entry_lists.rules(places)
    left_out = tuple(
        f"{place}: {GPUS} is not for this plugin: deploy the gpu plugin"
        for place, rule in zip(places, rules, strict=False)  # none of too many
        if rule.pattern == GPUS
    )
    rules = tuple(rule for rule in rules if rule.pattern != GPUS)
    found = Configuration((), rules, is_given=True, place=str(root), left_out=left_out)
    return {"domain": SMARTER_DOMAIN, "configuration": found}


@dataclass(frozen=True)
class Devices:
    """The entries of the configuration, as a setting."""

    configuration: Configuration = field(default_factory=Configuration)
    texts: tuple[str, ...] = ()
    """The entries as they were written, for ``--print-config``."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the entries in the values of flags, or of a variable."""
        if isinstance(value, cls):
            return value
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            raise dp.ConfigError("a list of devices belongs here")
        if not all(text.strip() for text in texts):
            raise dp.ConfigError("is empty: write [] for no devices, or leave it out")
        roots = [of_text(text) for text in texts]
        for root in roots:
            _quote_numbers(root)
        entries, _ = of_flags(roots)
        made = cls(Configuration(entries, is_given=True), tuple(texts))
        refuse([root.faults for root in roots], made)
        return made

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


def of_flags(roots: Sequence[Place]) -> tuple[tuple[Entry, ...], list[Place]]:
    """Return the entries in the values of flags, each of which is one or a list, and their places.

    Faults are collected.
    """
    groups = [items(root) if root.kind in {"list", "nothing"} else [root] for root in roots]
    places = [place for found in groups for place in found]
    quoted = [one for one in roots if one.kind == "text" and one.raw.lstrip()[:1] in {"{", "["}]
    for root in quoted:
        root.fault("is in quotes of its own: remove them, as a shell would have done")
    return entry_lists.entries(place for place in places if place not in quoted), places


def _quote_numbers(place: Place) -> None:
    """Make numbers of vendors and products strings: a flag's are hexadecimal, as in the peer's.

    One that is not as YAML would write it again, such as 0403, could mean two, and stays wrong.
    """
    for key, inner in place.keys().items() if place.kind == "mapping" else ():
        node = inner.node
        if key in {"vendor", "product"} and node.kind == "integer" and node.raw == str(node.value):
            place.node.pairs[key] = replace(node, kind="text", value=node.raw)
        _quote_numbers(inner)
    for inner in place.items() if place.kind == "list" else ():
        _quote_numbers(inner)


def read(root: Place) -> Mapping[str, object]:
    """Return the settings in a file, including ``device``. Faults are collected.

    The keys of generic-device-plugin are accepted too, and so is a file of smarter-device-manager.
    """
    if root.kind == "list":
        found = smarter_read(root)
        return {"device": Devices(found.pop("configuration")), **found}
    settings: dict[str, object] = {}
    if not root.key.startswith(
        "nodes["
    ):  # an entry of nodes may leave the devices of the rest as they are
        settings["device"] = Devices(Configuration(place=str(root)))
    names: dict[str, str] = {}
    for name, place in root.keys().items():
        key = SETTINGS.get(name, name)
        if name not in SETTINGS and name.lower() in SETTINGS:
            place.fault(f"unknown key: did you mean {name.lower()!r}?")
            continue
        if key in names:
            place.fault(f"means the same as {names[key]}, which is there too: keep one of them")
        elif key == "device":
            entries = entry_lists.entries(items(place))
            settings["device"] = Devices(Configuration(entries, is_given=True, place=str(place)))
        else:
            is_level = key == "log-level" and place.raw in LEVELS
            settings[key] = LEVELS[place.raw] if is_level else place
        names.setdefault(key, name)
    return settings


def translated(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with its flags and its log levels replaced by ours."""
    is_level = False
    for argument in arguments:
        if is_level:
            yield LEVELS.get(argument, argument)
            is_level = False
            continue
        flag, equals, value = argument.partition("=")
        if equals and flag == _LEVEL:
            value = LEVELS.get(value, value)
        is_level = argument == _LEVEL
        yield f"{_FLAGS.get(flag, flag)}{equals}{value}"
