"""What a discovery has found: sorted out, counted and told."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from deviceplugin._rules import device_problem, resource_name_problem
from deviceplugin.model import Device

Groups = dict[str, dict[str, Device]]
"""Devices by id, by resource."""


def sort_out(found: Iterable[Device], default: str) -> tuple[Groups, list[str]]:
    """Return the devices by resource, and a text for each thing that had to be left out.

    Devices that name no resource belong to ``default``, which is there even without devices.
    """
    groups: Groups = {default: {}} if default else {}
    problems: dict[str, None] = {}
    for device in found:
        if problem := device_problem(device):
            problems[problem] = None
            continue
        group = groups.setdefault(device.resource or default, {})
        if device.id in group:
            problems[f"device id {device.id!r} is given more than once"] = None
        else:
            group[device.id] = device
    for name in list(groups):
        if problem := resource_name_problem(name):
            problems[f"resource name {name!r} is not valid: {problem}"] = None
            del groups[name]
    return groups, list(problems)


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
        "since": datetime.fromtimestamp(since, UTC).isoformat(timespec="milliseconds"),
        "numa_nodes": list(device.topology.numa_nodes) if device.topology else [],
        "nodes": [node.host_path for node in device.nodes],
        "attributes": dict(device.attributes),
    }
