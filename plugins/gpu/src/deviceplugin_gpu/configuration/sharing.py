"""The setting that says which GPUs several containers share, and how."""

from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from deviceplugin_gpu.configuration.resource_names import resource_name
from deviceplugin_gpu.configuration.values import Place, checked, truth

MAX_REPLICAS: Final = 1000
_KINDS: Final = ("timeSlicing", "mps")
_KEYS: Final = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
_ENTRY_KEYS: Final = ("name", "replicas", "rename", "devices")


@dataclass(frozen=True, slots=True)
class Share:
    """How the devices of one resource are shared."""

    name: str
    replicas: int = 1
    rename: str = ""
    """Name of the resource of the replicas; empty for the usual one."""
    devices: Literal["all"] | int | tuple[str, ...] = "all"


@dataclass(frozen=True, slots=True)
class Sharing:
    """What is shared, by time-slicing or by MPS; nothing, without ``shares``."""

    mps: bool = False
    rename_by_default: bool = False
    one_at_most: bool = False
    """Refuse a request for more than one replica, which would bring no more computing power."""
    shares: tuple[Share, ...] = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the sharing that YAML, or what a file has, describes.

        Raises:
            ConfigError: All that is wrong, a line each.
        """
        if isinstance(value, cls):
            return value
        with checked(value) as place:
            place.only(_KINDS)
            given = [kind for kind in _KINDS if kind in place.keys()]  # noqa: SIM118
            if len(given) == len(_KINDS):
                place.problems.append("timeSlicing and mps do not go together: choose one")
            kind = given[-1] if given else ""
            return cls._read(place.inner(kind), mps=kind == "mps") if kind else cls()

    @classmethod
    def _read(cls, place: Place, *, mps: bool) -> Self:
        place.only(_KEYS)
        by_default = place.take("renameByDefault", truth, default=False)
        one = place.take("failRequestsGreaterThanOne", truth, default=mps)
        shares = tuple(_share(entry, by_default=by_default) for entry in place.each("resources"))
        names = [share.name for share in shares]
        for name in sorted({name for name in names if name and names.count(name) > 1}):
            same = [share for share in shares if share.name == name]
            if any(isinstance(share.devices, str | int) for share in same):
                place.problems.append(
                    f"{place.at('resources')}{name} is given more than once: say which devices"
                )
        return cls(mps, by_default, one, shares)

    def write(self) -> dict[str, Any]:
        """Return it as a file has it."""
        if not self.shares:
            return {}
        return {
            "mps" if self.mps else "timeSlicing": {
                "renameByDefault": self.rename_by_default,
                "failRequestsGreaterThanOne": self.one_at_most,
                "resources": [_written(share) for share in self.shares],
            }
        }


def _share(place: Place, *, by_default: bool) -> Share:
    place.only(_ENTRY_KEYS)
    place.need("name", "replicas")
    name = place.take("name", resource_name, "")
    rename = place.take("rename", resource_name, _default_rename(place, name) if by_default else "")
    return Share(
        name,
        place.take("replicas", replicas, 1),
        rename,
        place.take("devices", devices, "all"),
    )


def _default_rename(place: Place, name: str) -> str:
    try:
        return resource_name(f"{name}.shared") if name else ""
    except ValueError:
        place.problems.append(f"{place.at()}{name}.shared is too long: give a name by rename")
        return ""


def _written(share: Share) -> dict[str, Any]:
    names = list(share.devices) if isinstance(share.devices, tuple) else share.devices
    written = {"name": share.name, "replicas": share.replicas, "devices": names}
    return written | ({"rename": share.rename} if share.rename else {})


def replicas(value: Any) -> int:
    """Return a number of replicas; 1 is one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REPLICAS:
        raise ValueError(f"is not a whole number from 1 to {MAX_REPLICAS}")
    return value


def devices(value: Any) -> "Literal['all'] | int | tuple[str, ...]":
    """Return which devices are shared: all, the first so many, or those that are named."""
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, list) and value:
        texts = [str(item) for item in value if isinstance(item, int | str) and item != ""]
        if len(texts) == len(value) and not any(isinstance(item, bool) for item in value):
            return tuple(texts)
    raise ValueError("is not all, a number above 0, or a list of indices, UUIDs and models")
