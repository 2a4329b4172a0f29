"""An inventory as a table for people and as JSON for programs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deviceplugin._app.text_table import aligned
from deviceplugin.tools import _json_report
from deviceplugin.tools.devices._inventory import Device, Inventory

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_HEADER: Final = ("RESOURCE", "DEVICE", "STATE", "NUMA", "HELD BY", "REASON")
_NONE: Final = "-"


def table(inventory: Inventory) -> str:
    """Return the devices as a table, sums, and what is unknown."""
    devices = list(inventory)
    lines = aligned([_HEADER, *map(_row, devices)]) if devices else ["no devices"]
    lines += _sums(devices)
    lines += [f"unknown: {text}" for text in inventory.unknown]
    return "\n".join([*lines, ""])


def _row(device: Device) -> tuple[str, ...]:
    holders = list(map(str, sorted(device.holders)))
    return (
        device.resource,
        device.id,
        device.state,
        ",".join(map(str, sorted(device.numa_nodes))) or _NONE,
        ", ".join(holders) or _NONE,
        _reason(device) or _NONE,
    )


def _reason(device: Device) -> str:
    since = f" (since {device.since})" if device.reason and device.since else ""
    return " ".join(f"{device.reason}{since}".split())


def _sums(devices: Sequence[Device]) -> list[str]:
    if not devices:
        return []
    parts = []
    for resource in dict.fromkeys(device.resource for device in devices):
        states = Counter(device.state for device in devices if device.resource == resource)
        counts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        parts.append(f"{resource}: {counts}")
    return ["", *parts]


def document(inventory: Inventory) -> Mapping[str, Any]:
    """Return everything, for JSON. ``null`` means unknown."""
    return _json_report.document(
        FORMAT,
        {
            "devices": [_entry(device) for device in inventory],
            "unknown": inventory.unknown,
        },
    )


def _entry(device: Device) -> Mapping[str, Any]:
    return {
        "resource": device.resource,
        "id": device.id,
        "state": device.state,
        "allocatable": device.allocatable,
        "healthy": device.healthy,
        "reason": device.reason,
        "since": device.since,
        "numa_nodes": sorted(device.numa_nodes),
        "attributes": device.attributes,
        "capacity": device.capacity,
        "holders": [
            {"namespace": h.namespace, "pod": h.pod, "container": h.container}
            | ({"claim": h.claim} if h.claim else {})
            for h in sorted(device.holders)
        ],
    }


def to_json(inventory: Inventory) -> str:
    """Return everything as JSON."""
    return _json_report.to_json(document(inventory))
