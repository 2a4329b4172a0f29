"""What ResourceSlices say, for whoever reads them: shares, taints, and which slices count.

It is light: a plugin loads it for the names, the operator and ``deviceplugin fleet`` to count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from deviceplugin._config.quantities import whole_number

HELD: Final = "held"
"""The taint of a device that a pod holds, or may get, through the device plugin."""
PART: Final = "/part"
"""Follows the resource of a part that is made for a claim, so that no class of the resource, and no
pod that asks for that, gets one. What results can be the name of no resource."""
SHARES: Final = "shares"
"""The capacity of a shared device: how many shares it has for claims."""
_KEEPS_PODS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_WRONG: Final = (LookupError, TypeError, AttributeError, ValueError)


class PartOfPool(Protocol):
    """What is kept of a slice."""

    @property
    def pool(self) -> object:
        """What identifies its pool."""

    @property
    def generation(self) -> int:
        """Of all slices of the pool, only those of the newest count."""

    @property
    def size(self) -> int:
        """How many slices the pool has in this generation."""


_P = TypeVar("_P", bound=PartOfPool)


def has_shares(device: Mapping[str, Any]) -> bool:
    """Return whether several claims can have shares of a device in a slice."""
    return bool(device.get("allowMultipleAllocations"))


def shares(device: Mapping[str, Any]) -> int:
    """Return as how many a device in a slice counts."""
    return amount((device.get("capacity") or {}).get(SHARES)) if has_shares(device) else 1


def amount(capacity: Any) -> int:
    """Return how many shares a capacity is, or a request for some; 1 if it does not say."""
    with suppress(*_WRONG):
        return whole_number(str(capacity["value"] if isinstance(capacity, dict) else capacity))
    return 1


def taint(device: Mapping[str, Any], driver: str) -> str:
    """Return why no claim gets a device: ``HELD`` if only for that, ``taint``, or nothing."""
    keys = {
        one["key"] for one in device.get("taints") or () if one.get("effect") in _KEEPS_PODS_OFF
    }
    return (HELD if keys == {f"{driver}/{HELD}"} else "taint") if keys else ""


def newest(parts: Iterable[_P]) -> Iterator[tuple[Sequence[_P], bool]]:
    """Yield the slices of each pool's newest generation, and whether all of them are there."""
    pools: dict[object, list[_P]] = {}
    for one in parts:
        known = pools.setdefault(one.pool, [])
        if known and one.generation > known[0].generation:
            known.clear()
        if not known or one.generation == known[0].generation:
            known.append(one)
    for found in pools.values():
        yield found, len(found) == found[0].size
