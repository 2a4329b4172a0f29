"""The devices that a driver offers, as its slices have them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

Slices = Sequence[Mapping[str, Any]]


class Offered(NamedTuple):
    """A device in the driver's slices."""

    pool: str
    device: str
    consumed: tuple[tuple[str, str], ...] | None = None
    """What a claim consumes that asks for nothing special; None of a device that is not shared."""

    @property
    def result(self) -> Mapping[str, Any]:
        """What the scheduler writes about it, but for the request and the driver."""
        found: dict[str, Any] = {"pool": self.pool, "device": self.device}
        if self.consumed is not None:
            found |= {"shareID": str(uuid4()), "consumedCapacity": dict(self.consumed)}
        return found


def newest(slices: Slices) -> dict[str, Slices]:
    """Return the slices of the newest generation, by pool."""
    pools: dict[str, list[Mapping[str, Any]]] = {}
    for one in slices:
        pools.setdefault(one["spec"]["pool"]["name"], []).append(one)
    return {name: _newest(found) for name, found in pools.items()}


def _newest(slices: Slices) -> Slices:
    generation = max(one["spec"]["pool"]["generation"] for one in slices)
    return [one for one in slices if one["spec"]["pool"]["generation"] == generation]


def offered(pools: Mapping[str, Slices]) -> Iterator[Offered]:
    """Yield the devices without taints of complete pools, in the order of the scheduler."""
    for name, slices in sorted(pools.items()):
        if len(slices) == slices[0]["spec"]["pool"]["resourceSliceCount"]:
            for one in sorted(slices, key=lambda one: str(one["metadata"]["name"])):
                for device in one["spec"].get("devices", ()):
                    if not device.get("taints"):
                        yield Offered(name, device["name"], _consumed(device))


def _consumed(device: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
    if not device.get("allowMultipleAllocations"):
        return None
    return tuple(
        (name, one.get("requestPolicy", {}).get("default") or one["value"])
        for name, one in device.get("capacity", {}).items()
    )
