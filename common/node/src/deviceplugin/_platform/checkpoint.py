"""The kubelet's checkpoint of devices: what is in it, and its checksum.

Both are the same in Kubernetes 1.26 to 1.36.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

FILE_NAME = "kubelet_internal_checkpoint"
"""The checkpoint's, in the plugin directory."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


class Entry(NamedTuple):
    """What one container has of one resource."""

    pod: str
    """Its uid; the checkpoint has no names of pods."""
    container: str
    resource: str
    devices: Mapping[int, Sequence[str]]
    """Ids by NUMA node. A device near several nodes occurs several times."""
    response: bytes
    """The plugin's answer to Allocate, as on the wire."""

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The resource with each of the devices."""
        return [(self.resource, device) for device in dict.fromkeys(chain(*self.devices.values()))]


class Recorded(NamedTuple):
    """What the kubelet restores after a restart."""

    entries: Sequence[Entry]
    registered: frozenset[str]
    """The names of the resources that have a plugin, or had one in the last five minutes."""


def decode(text: bytes) -> Recorded:
    """Return what is in the checkpoint ``text``; ValueError if a kubelet would not use it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    try:
        data = document["Data"]
        intact = document["Checksum"] == checksum(data)
        entries = [_entry(one) for one in data["PodDeviceEntries"] or ()]
        registered = frozenset(data["RegisteredDevices"] or ())
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"is not a checkpoint of devices: {error!r}") from None
    if not intact:
        raise ValueError("its content does not match its checksum")
    return Recorded(entries, registered)


def _entry(found: Mapping[str, Any]) -> Entry:
    devices = {int(node): tuple(ids or ()) for node, ids in (found["DeviceIDs"] or {}).items()}
    names = found["PodUID"], found["ContainerName"], found["ResourceName"]
    if odd := [one for one in (*names, *chain(*devices.values())) if not isinstance(one, str)]:
        raise TypeError(f"{odd[0]!r} is not a string")
    return Entry(*names, devices, base64.b64decode(found["AllocResp"] or ""))


def checksum(data: Mapping[str, Any]) -> int:
    """Return the checksum of the checkpoint's ``Data``: FNV-1a of a text that prints it."""
    return fnv1a(checksum_text(data).encode())


def checksum_text(data: Mapping[str, Any]) -> str:
    """Return ``data`` in Go's syntax with types, with sorted maps, and null distinct from empty."""
    entries = _list([_entry_text(entry) for entry in _items(data["PodDeviceEntries"])])
    registered = _map({name: _list(ids) for name, ids in _pairs(data["RegisteredDevices"])})
    if data["PodDeviceEntries"] is None:
        entries = "<nil>"
    if data["RegisteredDevices"] is None:
        registered = "<nil>"
    return (
        "(checkpoint.checkpointData){"
        f"PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){registered}}}"
    )


def fnv1a(data: bytes) -> int:
    state = _FNV_OFFSET
    for byte in data:
        state = (state ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return state


def _entry_text(entry: Mapping[str, Any]) -> str:
    devices = entry["DeviceIDs"]
    nodes = sorted(_pairs(devices), key=lambda pair: int(pair[0]))
    nodes_text = "<nil>" if devices is None else _map({node: _list(ids) for node, ids in nodes})
    encoded = entry["AllocResp"]
    response = (
        None
        if encoded is None
        else [str(byte) for byte in base64.b64decode(encoded, validate=True)]
    )
    return (
        f"{{PodUID:(string){entry['PodUID']} ContainerName:(string){entry['ContainerName']} "
        f"ResourceName:(string){entry['ResourceName']} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){nodes_text} AllocResp:([]uint8){_list(response)}}}"
    )


def _items(value: list[Any] | None) -> list[Any]:
    return [] if value is None else value


def _pairs(value: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    return [] if value is None else sorted(value.items())


def _list(items: list[str] | None) -> str:
    return "<nil>" if items is None else f"[{' '.join(items)}]"


def _map(items: Mapping[str, str]) -> str:
    return f"map[{' '.join(f'{key}:{value}' for key, value in items.items())}]"
