"""What a container gets."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node that appears in the container."""

    host_path: str
    container_path: str = ""
    """By default the same as ``host_path``."""
    permissions: str = "rw"
    """Any of r (read), w (write) and m (mknod)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "host_path", str(self.host_path))
        object.__setattr__(self, "container_path", str(self.container_path or self.host_path))


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host that appears in the container."""

    host_path: str
    container_path: str = ""
    """By default the same as ``host_path``."""
    read_only: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "host_path", str(self.host_path))
        object.__setattr__(self, "container_path", str(self.container_path or self.host_path))


class Joined(str):
    """The value of a variable that is a list: those of a container's devices are joined by commas.

    Other variables with different values would be a conflict. Empty values add nothing, and equal
    ones, such as those of two shares, add one.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a container gets.

    ``a + b`` joins two. Nodes, mounts and CDI names of ``b`` follow those of ``a``, without
    duplicates. Environment and annotations are merged, and ``b`` wins, but two `Joined` values of
    one variable are joined.
    """

    nodes: Sequence[DeviceNode] = ()
    mounts: Sequence[Mount] = ()
    envs: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """For the container runtime; not shown on the pod."""
    cdi_names: Sequence[str] = ()
    """Fully qualified CDI device names, such as ``vendor.com/gpu=0``."""

    def __post_init__(self) -> None:
        freeze(self, lists=("nodes", "mounts", "cdi_names"), mappings=("envs", "annotations"))
        for name in ("envs", "annotations"):
            # An error here costs one request only, and shows the author the place.
            if type(given := getattr(self, name)) is not MappingProxyType:
                raise TypeError(
                    f"Allocation: {name} is of type {type(given).__name__}, not a mapping"
                )

    def __add__(self, other: "Allocation") -> "Allocation":
        return Allocation(
            nodes=_unique((*self.nodes, *other.nodes)),
            mounts=_unique((*self.mounts, *other.mounts)),
            envs={**self.envs, **other.envs, **_joined(self.envs, other.envs)},
            annotations={**self.annotations, **other.annotations},
            cdi_names=_unique((*self.cdi_names, *other.cdi_names)),
        )


def _joined(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that both have as lists, each with the parts of both."""
    both = {
        name: f"{value},{second[name]}".split(",")
        for name, value in first.items()
        if isinstance(value, Joined) and isinstance(second.get(name), Joined)
    }
    return {name: Joined(",".join(filter(None, _unique(parts)))) for name, parts in both.items()}


def _unique(items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))


def freeze(value: object, *, lists: Iterable[str], mappings: Iterable[str]) -> None:
    """Replace what an author gave (lists, dicts) by what cannot be changed."""
    for name in lists:
        given = getattr(value, name)
        if type(given) is not tuple:
            object.__setattr__(value, name, listed(given))
    for name in mappings:
        given = getattr(value, name)
        if type(given) is not MappingProxyType:
            # What cannot be a mapping stays as it is: the framework reports it.
            with suppress(TypeError, ValueError):
                frozen = MappingProxyType(dict(given)) if given else NOTHING
                object.__setattr__(value, name, frozen)


def listed(given: Any) -> tuple[Any, ...]:
    """Return what was given for a list as a tuple. None is empty; a single value stands for one."""
    if given is None:
        return ()
    # A string for a list of strings is a slip: it means one string, not its letters.
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        return (given,)
    return tuple(given)
