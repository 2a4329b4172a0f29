"""Calling ``discover()``; grouping, counting and describing the devices that it returns."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from deviceplugin._config.names import resource_name_problem
from deviceplugin._inventory.validation import device_problem, shown
from deviceplugin._platform import hooks
from deviceplugin.errors import DiscoveryError
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin, overrides

if TYPE_CHECKING:
    from deviceplugin.model import Part

MAX_DEVICES: Final = 300_000
"""With more devices than this, a list is too long for the kubelet, whatever their ids."""

NOT_RETURNING: Final = "discover() does not return"

_NOTHING: Final[Mapping[str, Mapping[str, Device]]] = MappingProxyType({})
_NO_DEVICES: Final[Mapping[str, Device]] = MappingProxyType({})

Groups = dict[str, dict[str, Device]]
"""Devices by id, by resource."""


def discover(
    plugin: Plugin, known: Mapping[str, Mapping[str, Device]] = _NOTHING
) -> tuple[Groups, Counter[str]]:
    """Return the devices of ``plugin``, as by ``sort_out``.

    DevicePluginError if it raised something, or yields without end.
    """

    def found() -> tuple[Groups, Counter[str]]:
        given: object = plugin.discover()
        if not isinstance(given, Iterable):  # one can forget the return or the list
            raise TypeError(
                f"discover() must return a list of devices, or yield them, not {shown(given)}"
            )
        # Without a list in between, memory that is reused at once is still in the CPU's caches.
        makes = overrides(plugin, "make_part")
        return sort_out(
            itertools.islice(given, MAX_DEVICES + 1), plugin.resource, known, makes=makes
        )

    groups, problems = hooks.call(found)
    if sum(map(len, groups.values())) + problems.total() > MAX_DEVICES:
        raise DiscoveryError(f"discover() returns more than {MAX_DEVICES} devices")
    return groups, problems


def sort_out(
    found: Iterable[Device],
    default: str,
    known: Mapping[str, Mapping[str, Device]] = _NOTHING,
    *,
    makes: bool = False,
) -> tuple[Groups, Counter[str]]:
    """Return the devices by resource, and how many others were skipped for which reason.

    Devices that name no resource belong to ``default``, which is included even without devices. A
    device that equals a known one is replaced by it, so later steps see by identity that it is
    unchanged. Parts on demand are skipped unless the plugin ``makes`` some.
    """
    groups: Groups = {default: {}} if default else {}
    problems: Counter[str] = Counter()
    has_parts = False
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
            has_parts |= device.part is not None
    _drop_misnamed(groups, problems)
    if has_parts:
        for resource, device, problem in list(_odd_parts(groups, makes=makes)):
            problems[f"device {device.id}: {problem}"] += 1
            del groups[resource][device.id]
    return groups, problems


def _drop_misnamed(groups: Groups, problems: Counter[str]) -> None:
    if nameless := groups.pop("", {}):
        problems["no resource is named, by the device or as resource of the plugin"] = len(nameless)
    for name in list(groups):
        if problem := resource_name_problem(name):
            problems[f"resource name {name!r} is not valid: {problem}"] = len(groups.pop(name))


def _odd_parts(groups: Groups, *, makes: bool) -> Iterator[tuple[str, Device, str]]:
    """Yield parts that cannot be, with their resources and why. Of counters, most are right."""
    ways: dict[str, Counter[object]] = {}
    parts = [
        (resource, one, one.part, (resource, frozenset(one.part.of.amounts.items())))
        for resource, group in groups.items()
        for one in group.values()
        if one.part is not None
    ]
    for _, _, part, way in parts:
        ways.setdefault(part.of.name, Counter())[way] += 1
    for resource, device, part, way in parts:
        if part.on_demand and not makes:
            yield resource, device, "it is made on demand, but the plugin has no make_part()"
        elif way != ways[part.of.name].most_common(1)[0][0]:
            what = "has other amounts, or another resource, than most of its parts say"
            yield resource, device, f"part of {part.of.name}, which {what}"


def _known(
    device: object, default: str, known: Mapping[str, Mapping[str, Device]]
) -> Device | None:
    """Return the device in ``known`` that equals ``device``, or None."""
    if type(device) is not Device:  # a subclass may define equality differently
        return None
    try:
        before = known.get(device.resource or default, _NO_DEVICES).get(device.id)
        same = before is device or (type(before) is Device and before == device)
    except Exception:  # values of the plugin that cannot be hashed or compared
        return None
    return before if same else None


def counts(devices: Mapping[str, Device]) -> tuple[int, int]:
    """Return how many of ``devices`` are healthy, and how many are not."""
    healthy = sum(bool(device.health) for device in devices.values())
    return healthy, len(devices) - healthy


def describe(device: Device, since: float) -> Mapping[str, Any]:
    """Return ``device`` for JSON. ``since`` is the time when its health last changed."""
    return {
        "id": device.id,
        "healthy": device.health.healthy,
        "reason": device.health.reason,
        "since": _iso(since),
        "numa_nodes": list(device.topology.numa_nodes) if device.topology else [],
        "nodes": [node.host_path for node in device.nodes],
        "attributes": dict(device.attributes),
        "capacity": dict(device.capacity),
        **({"part": _part(device.part)} if device.part else {}),
    }


def _part(part: "Part") -> Mapping[str, Any]:
    return {
        "of": part.of.name,
        "amounts": dict(part.of.amounts),
        "consumes": dict(part.consumes),
        "groups": list(part.groups),
        "on_demand": part.on_demand,
    }


def facts(device: Device) -> Iterator[tuple[str, str]]:
    """Yield names and values of attributes and capacity, for people."""
    for name, value in itertools.chain(device.attributes.items(), device.capacity.items()):
        yield name, str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache  # most devices of a node appeared at the same time
def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
