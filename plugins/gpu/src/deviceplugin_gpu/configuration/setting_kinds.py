"""Settings that have a form of their own: strategies, names of resources, and sharing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import deviceplugin as dp
from deviceplugin.kit.configuration import (
    Place,
    boolean,
    either,
    integer,
    list_of,
    needed,
    record,
    suggestion,
    text,
)
from deviceplugin.kit.naming import naming, resource, resource_name
from deviceplugin.kit.sharing import MOST

STRATEGIES: Final = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")


@dataclass(frozen=True)
class Strategies:
    """How containers learn of their devices: one strategy or several."""

    names: tuple[str, ...] = ("envvar",)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the strategies in strings with commas, or in a list, or raise ConfigError."""
        if isinstance(value, cls):
            return value
        parts = value if isinstance(value, list) else [value]
        if not parts:
            raise dp.ConfigError("is empty: name one of " + ", ".join(STRATEGIES))
        names = [name.strip() for part in parts for name in str(part).split(",")]
        if unknown := [name for name in names if name not in STRATEGIES]:
            raise dp.ConfigError("\n".join(map(_unknown_strategy, unknown)))
        return cls(tuple(sorted(set(names), key=STRATEGIES.index)))

    @staticmethod
    def schema() -> Mapping[str, Any]:
        """Return what stands in a file, for editors; one text with commas may stand there too."""
        return {"type": "array", "items": {"type": "string", "enum": [*STRATEGIES]}, "minItems": 1}

    def write(self) -> list[str]:
        """Return their names."""
        return list(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def cdi(self) -> bool:
        """Whether CDI is used."""
        return any(name.startswith("cdi-") for name in self.names)

    @property
    def plain(self) -> bool:
        """Whether anything but CDI is used."""
        return any(not name.startswith("cdi-") for name in self.names)


def _unknown_strategy(name: str) -> str:
    near = suggestion(name, STRATEGIES)
    hint = f": {near}" if near.startswith("did") else ""
    return f"{name!r} is not one of {', '.join(STRATEGIES)}{hint}"


DOMAIN: Final = "nvidia.com"
RESOURCE: Final = resource(DOMAIN)
NAMING: Final = naming(DOMAIN, "mig")


@dataclass(frozen=True, slots=True)
class Share:
    """How the devices of one resource are shared."""

    name: str
    replicas: int = 1
    rename: str = ""
    """Resource name of the replicas; empty for the default one."""
    devices: Literal["all"] | int | tuple[str, ...] = "all"


@dataclass(frozen=True, slots=True)
class Sharing:
    """What is shared, by time-slicing or by MPS. Without ``shares``, nothing is."""

    mps: bool = False
    rename_by_default: bool = False
    one_at_most: bool = False
    """Refuse a request for more than one replica, because more give no more computing power."""
    shares: tuple[Share, ...] = ()


_WANTED: Final = "all, a number above 0, or a list of indices, UUIDs and models"
_DEVICES: Final = either(
    text(r"^all$", _WANTED),
    integer(1),
    list_of(text(r"^.+$", "an index, a UUID or a model", digits=True), 1),
    wanted=_WANTED,
)
_SHARE: Final = record(
    Share,
    {
        "name": needed(RESOURCE),
        "replicas": needed(integer(1, MOST)),
        "rename": RESOURCE,
        "devices": _DEVICES,
    },
)


@dataclass(frozen=True, slots=True)
class _Given:
    """The keys below ``timeSlicing`` or ``mps``, as in the file."""

    renameByDefault: bool = False  # noqa: N815
    failRequestsGreaterThanOne: bool | None = None  # noqa: N815
    resources: tuple[Share, ...] = ()


def _distinct(shares: Sequence[tuple[Place, Share]]) -> None:
    """Collect names that are repeated without naming devices each time."""
    for number, (place, share) in enumerate(shares):
        same = [other for _, other in shares[:number] if other.name == share.name]
        if same and any(isinstance(one.devices, str | int) for one in (share, *same)):
            place.fault(f"{share.name} is given more than once: say which devices")


def _renamed(place: Place, given: _Given) -> _Given:
    """Return shares with the names of their replicas. No device is in two of them."""
    shares = []
    entries = place.keys()["resources"].items() if given.resources else []
    for entry, share in zip(entries, given.resources, strict=True):
        rename = share.rename or (f"{share.name}.shared" if given.renameByDefault else "")
        try:
            shares.append(replace(share, rename=resource_name(rename, DOMAIN) if rename else ""))
        except ValueError:
            entry.fault(f"{rename} is too long: give a name by rename")
    return replace(given, resources=tuple(shares))


_WAY: Final = record(
    _Given,
    {
        "renameByDefault": boolean(),
        "failRequestsGreaterThanOne": boolean(),
        "resources": list_of(_SHARE, together=_distinct),
    },
).then(_renamed)


def _one_way(place: Place, given: Mapping[str, Place]) -> None:
    if len(given) > 1:
        place.fault("timeSlicing and mps exclude each other: use one")


def _sharing(**ways: _Given) -> Sharing:
    for way, given in ways.items():
        one = given.failRequestsGreaterThanOne
        is_mps = way == "mps"
        at_most = is_mps if one is None else one
        return Sharing(is_mps, given.renameByDefault, at_most, given.resources)
    return Sharing()


def _written(sharing: Sharing) -> dict[str, Any]:
    if not sharing.shares:
        return {}
    given = _Given(sharing.rename_by_default, sharing.one_at_most, sharing.shares)
    return {"mps" if sharing.mps else "timeSlicing": _WAY.write(given)}


SHARING: Final = replace(
    record(_sharing, {"timeSlicing": _WAY, "mps": _WAY}, rules=[_one_way]),
    write=_written,
)
