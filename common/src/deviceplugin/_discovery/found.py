"""Calling ``discover()``; sorting out, counting and describing the devices that it found."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from deviceplugin._inventory.validation import (
    device_problem,
    resource_name_problem,
    shown,
)
from deviceplugin._platform import hooks
from deviceplugin.errors import DiscoveryError
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin

MAX_DEVICES: Final = 300_000
"""No list of more devices can be short enough for the kubelet, whatever their ids."""

NOT_RETURNING: Final = "discover() does not return"

_NOTHING: Final[Mapping[str, Mapping[str, Device]]] = MappingProxyType({})
_NO_DEVICES: Final[Mapping[str, Device]] = MappingProxyType({})

Groups = dict[str, dict[str, Device]]
"""Devices by id, by resource."""


def discover(
    plugin: Plugin, known: Mapping[str, Mapping[str, Device]] = _NOTHING
) -> tuple[Groups, Counter[str]]:
    """Return what ``plugin`` discovers, sorted out while it comes; see ``sort_out``.

    Raises:
        DevicePluginError: It raised something, or goes on without an end.
    """

    def found() -> tuple[Groups, Counter[str]]:
        # Not kept in a list first: memory that is used again at once is still in the caches.
        limited = itertools.islice(_iterate(plugin.discover()), MAX_DEVICES + 1)
        return sort_out(limited, plugin.resource, known)

    groups, problems = hooks.call(found)
    if sum(map(len, groups.values())) + problems.total() > MAX_DEVICES:
        raise DiscoveryError(f"discover() gives more than {MAX_DEVICES} devices")
    return groups, problems


def _iterate(found: Iterable[Device]) -> Iterator[Device]:
    try:
        return iter(found)
    except TypeError:  # of an author without a type checker, who forgot the return or the list
        raise TypeError(
            f"discover() must return a list of devices, or yield them, not {shown(found)}"
        ) from None


def sort_out(
    found: Iterable[Device], default: str, known: Mapping[str, Mapping[str, Device]] = _NOTHING
) -> tuple[Groups, Counter[str]]:
    """Return the devices by resource, and why how many others had to be left out.

    Devices that name no resource belong to ``default``, which is there even without devices.
    One that is equal to one of ``known`` is not checked again, and the known object is returned
    in its place: whoever comes after can tell by identity that nothing has changed.
    """
    groups: Groups = {default: {}} if default else {}
    problems: Counter[str] = Counter()
    for given in found:
        device = _known(given, default, known)
        if device is None:
            if problem := device_problem(given):
                problems[problem] += 1
                continue
            device = given
        group = groups.setdefault(device.resource or default, {})
        if device.id in group:
            problems[f"device id {device.id!r} is given more than once"] += 1
        else:
            group[device.id] = device
    if nameless := groups.pop("", {}):
        problems["no resource is named, by the device or as resource of the plugin"] = len(nameless)
    for name in list(groups):
        if problem := resource_name_problem(name):
            problems[f"resource name {name!r} is not valid: {problem}"] = len(groups.pop(name))
    return groups, problems


def _known(
    device: object, default: str, known: Mapping[str, Mapping[str, Device]]
) -> Device | None:
    """Return that of ``known`` which is equal to ``device``."""
    if type(device) is not Device:  # a subclass may call equal what we tell apart
        return None
    try:
        before = known.get(device.resource or default, _NO_DEVICES).get(device.id)
        same = before is device or (type(before) is Device and before == device)
    except Exception:  # an author's values that cannot be looked up or compared
        return None
    return before if same else None


def counts(devices: Mapping[str, Device]) -> tuple[int, int]:
    """Return how many of ``devices`` are healthy, and how many are not."""
    healthy = sum(bool(device.health) for device in devices.values())
    return healthy, len(devices) - healthy


def describe(device: Device, since: float) -> Mapping[str, Any]:
    """Return ``device`` ready for JSON; ``since`` is when its health last changed."""
    return {
        "id": device.id,
        "healthy": device.health.healthy,
        "reason": device.health.reason,
        "since": _iso(since),
        "numa_nodes": list(device.topology.numa_nodes) if device.topology else [],
        "nodes": [node.host_path for node in device.nodes],
        "attributes": dict(device.attributes),
    }


@lru_cache  # most devices of a node have turned up together
def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
