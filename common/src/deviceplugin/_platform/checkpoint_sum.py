"""The checksum of the kubelet's checkpoint of devices: the same in Kubernetes 1.26 to 1.36."""

import base64
from collections.abc import Mapping
from typing import Any

FILE_NAME = "kubelet_internal_checkpoint"
"""The checkpoint's, in the plugin directory."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def checksum(data: Mapping[str, Any]) -> int:
    """Return the checksum of the checkpoint's ``Data``: FNV-1a of a text that prints it.

    Raises:
        LookupError: ``data`` is not such data. So do TypeError, ValueError and AttributeError.
    """
    return fnv1a(checksum_text(data).encode())


def checksum_text(data: Mapping[str, Any]) -> str:
    """Return ``data`` as the kubelet prints it to compute the checksum.

    That is Go syntax with types, with maps sorted by key, and with null distinct from empty.
    """
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
    """Return the 32-bit FNV-1a hash of ``data``."""
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
