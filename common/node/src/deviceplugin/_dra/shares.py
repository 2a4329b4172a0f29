"""Devices that are shares of one: slices have that one, and Kubernetes counts its shares."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from deviceplugin._dra.naming import device_name, device_names
from deviceplugin.model import Device

SHARES: Final = "shares"
"""The capacity of a shared device: how many shares it has for claims."""

Amount = Mapping[str, Any]
"""A capacity of a device in a slice, as JSON."""


class PoolNames(NamedTuple):
    """What names stand for in the pool of a resource, whether its shares are counted or not."""

    devices: Mapping[str, str]
    """The ids of single devices, shares among them, by name."""
    shared: Mapping[str, Sequence[str]]
    """The ids of the shares of each shared device, by its name."""
    wholes: Mapping[str, str]
    """The id of each shared device, by its name."""

    def in_order(
        self, ids: Iterable[str], *, counted: bool
    ) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield the devices that slices have: name, id, and ids of shares, in the order of ``ids``.

        If shares are not ``counted``, all are single devices, without shares.
        """
        shared = self.shared if counted else {}
        firsts = {found[0]: name for name, found in shared.items()}
        parts = {one for found in shared.values() for one in found}
        singles = {one: name for name, one in self.devices.items()}
        for one in ids:
            if name := firsts.get(one):
                yield name, self.wholes[name], shared[name]
            elif one not in parts and one in singles:
                yield singles[one], one, ()


def names_in(devices: Mapping[str, Device], name: Callable[[str], str] = device_name) -> PoolNames:
    """Return the names of ``devices``, and of those that they are shares of."""
    groups = shared(devices)
    named = device_names([*devices, *groups], name)
    return PoolNames(
        {name: one for name, one in named.items() if one not in groups},
        {name: groups[one] for name, one in named.items() if one in groups},
        {name: one for name, one in named.items() if one in groups},
    )


def shared(devices: Mapping[str, Device]) -> Mapping[str, Sequence[str]]:
    """Return the ids of the shares of each shared device, by its own.

    Where that is also the id of a device, it is not clear what a name means: all are single.
    """
    groups: dict[str, list[str]] = {}
    for device_id, device in devices.items():
        if device.share_of and device.share_of not in devices:
            groups.setdefault(device.share_of, []).append(device_id)
    return groups


def counted(count: int) -> Amount:
    """Return the capacity of a device with ``count`` shares; a claim has one by default."""
    # The API server refuses a step to more than there are.
    size = {"max": "1"} if count == 1 else {"step": "1"}
    return {
        "value": str(count),
        "requestPolicy": {"default": "1", "validRange": {"min": "1", **size}},
    }


def uncounted(amount: Amount) -> Amount:
    """Return another capacity of a shared device: claims consume none unless they ask for some.

    Without a default, the first claim would consume all of it.
    """
    return {**amount, "requestPolicy": {"default": "0"}}


def has_shares(body: Mapping[str, Any]) -> bool:
    """Return whether a device in a slice is one of which several claims can have shares."""
    return bool(body.get("allowMultipleAllocations"))
