"""Parts that are made of a piece of hardware for whoever gets them, and what they consume of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.model._allocation import freeze


@dataclass(frozen=True, slots=True)
class Counters:
    """What the parts of one piece of hardware share, such as its memory slices."""

    name: str
    """Unique among the devices of a resource, the same after a restart or reboot."""
    amounts: Mapping[str, int]
    """How much there is of each for parts: all, but for what is in use by others than claims."""

    def __post_init__(self) -> None:
        freeze(self, lists=(), mappings=("amounts",))


@dataclass(frozen=True, slots=True)
class Part:
    """That a device is made of hardware which other devices can be made of instead.

    Claims get parts of one piece of hardware as long as none of its counters is exceeded. The whole
    is a part, too, that consumes all of it.
    """

    of: Counters
    """Equal in all parts of one piece of hardware, which must have one resource."""
    consumes: Mapping[str, int]
    """How much the part takes of counters in ``of``; 0 of those that are absent."""
    groups: Sequence[str] = ()
    """If it has some, only parts that have one of these in common are made at the same time."""
    on_demand: bool = True
    """Whether it is made for a claim. Then the device plugin never offers it, and in slices its
    attribute ``resource`` ends in ``/part``, so that pods that ask for the resource get wholes.
    Otherwise it is there as long as no part on demand is."""
    identity: str = ""
    """What tells the part that was made from any other one in its place, such as its UUID."""

    def __post_init__(self) -> None:
        freeze(self, lists=("groups",), mappings=("consumes",))


def agree(groups: Sequence[frozenset[str]]) -> bool:
    """Return whether parts with these ``groups``, one at least, may be made together."""
    first, *others = groups
    return not any(groups) or bool(first.intersection(*others))
