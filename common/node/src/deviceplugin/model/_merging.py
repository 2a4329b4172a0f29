"""Merging the recipes of several devices into one allocation."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Final

from deviceplugin.errors import AllocationError
from deviceplugin.model._allocation import Allocation, DeviceNode, Mount
from deviceplugin.model._device import Device

_ADVICE: Final = (
    'request one of them for each container, or have their plugin number them with "{position}"'
)

_NOTHING: Final = Allocation()
_Claim = tuple[str, str]
"""A place in the container, as messages show it: the kind, and the name or path."""


def merged(devices: Sequence[Device]) -> Allocation:
    """Return the sum of the recipes of ``devices``, each at its position.

    Devices whose recipes are equal, such as shares of one, have one position.

    Raises:
        AllocationError: Two devices need different things in one place of the container, so one of
            them would be lost.
    """
    if len(devices) == 1:  # as in most requests
        recipe = devices[0].allocation_at(0)
        longest = max(len(recipe.nodes), len(recipe.mounts), len(recipe.cdi_names))
        return recipe if longest < 2 else _NOTHING + recipe  # noqa: PLR2004 - without duplicates
    positions: dict[object, int] = {}
    owners: dict[_Claim, tuple[str, Device]] = {}
    total = _NOTHING
    for device in devices:
        recipe = device.allocation_at(positions.setdefault(_identity(device), len(positions)))
        for claim, value in dict(_claims(recipe)).items():
            before, owner = owners.setdefault(claim, (value, device))
            if value != before:
                raise _conflict(claim, (owner, before), (device, value))
        total += recipe
    return total


def _identity(device: Device) -> object:
    """Return a key that is equal for devices with equal recipes."""
    named = (frozenset(values.items()) for values in (device.envs, device.annotations))
    return (device.nodes, device.mounts, device.cdi_names, *named)


def _claims(recipe: Allocation) -> Iterator[tuple[_Claim, str]]:
    """Yield each place in the container with what the recipe puts there."""
    paths: tuple[DeviceNode | Mount, ...] = (*recipe.nodes, *recipe.mounts)
    for path in paths:
        yield ("path", posixpath.normpath(path.container_path)), posixpath.normpath(path.host_path)
    for name, value in recipe.envs.items():
        yield ("environment variable", name), value
    for name, value in recipe.annotations.items():
        yield ("annotation", name), value


def _conflict(
    claim: _Claim, first: tuple[Device, str], second: tuple[Device, str]
) -> AllocationError:
    (one, here), (other, there) = first, second
    what, name = claim
    # Values are not shown: they can be secrets, and a pod's status shows this message.
    problem = (
        f"{name} in the container would be {here} of {one.id} and {there} of {other.id}"
        if what == "path"
        else f"{what} {name} would have different values for {one.id} and {other.id}"
    )
    return AllocationError(f"{problem}: {_ADVICE}", device_ids=(one.id, other.id))
