"""The device manager's checkpoint file, byte for byte as the kubelet reads and writes it."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from deviceplugin.kit import files
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin.simulator._records import Entry, Grant

FILE_NAME = "kubelet_internal_checkpoint"

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


class CheckpointError(Exception):
    """There is no usable checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state that the device manager restores after a restart."""

    entries: tuple[Entry, ...]
    registered: frozenset[str]
    """The names of the resources that had a plugin."""


def write(directory: Path, entries: Iterable[Entry], healthy: Mapping[str, Iterable[str]]) -> None:
    """Replace the checkpoint in ``directory``."""
    data = {
        "PodDeviceEntries": [_encode(entry) for entry in entries] or None,
        "RegisteredDevices": {name: sorted(ids) for name, ids in sorted(healthy.items())},
    }
    text = json.dumps(
        {"Data": data, "Checksum": checksum(data)}, separators=(",", ":"), ensure_ascii=False
    )
    files.write(directory / FILE_NAME, text, mode=0o600, durable=False, again=True)


def read(directory: Path) -> Checkpoint:
    """Return the checkpoint in ``directory``, or raise ``CheckpointError``."""
    try:
        text = (directory / FILE_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError("checkpoint is not found") from None
    try:
        document = json.loads(text)
        data = document["Data"]
        intact = document["Checksum"] == checksum(data)
        entries = [_decode(entry) for entry in data["PodDeviceEntries"] or ()]
        registered = frozenset(data["RegisteredDevices"] or ())
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError("checkpoint is corrupted") from None
    if not intact:
        raise CheckpointError("checkpoint is corrupted")
    return Checkpoint(tuple(entry for entry in entries if entry), registered)


def checksum(data: Mapping[str, Any]) -> int:
    """Return the checksum of the checkpoint's ``Data``: FNV-1a of its printed form."""
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
    response = None if encoded is None else [str(byte) for byte in base64.b64decode(encoded)]
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


def _encode(entry: Entry) -> dict[str, Any]:
    nodes = sorted(entry.grant.nodes.items(), key=lambda pair: str(pair[0]))
    return {
        "PodUID": entry.pod,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(node): list(ids) for node, ids in nodes},
        "AllocResp": base64.b64encode(entry.grant.response.SerializeToString()).decode(),
    }


def _decode(entry: Mapping[str, Any]) -> Entry | None:
    """Return the entry, or None if the plugin's answer in it cannot be read."""
    try:
        response = pb.ContainerAllocateResponse.FromString(
            base64.b64decode(entry["AllocResp"] or "")
        )
    except DecodeError:
        return None
    nodes = {int(node): tuple(ids or ()) for node, ids in _pairs(entry["DeviceIDs"])}
    grant = Grant(nodes, response)
    return Entry(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], grant)
