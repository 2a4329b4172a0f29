"""The device manager's checkpoint file, byte for byte as the kubelet reads and writes it."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from deviceplugin._platform.checkpoint import FILE_NAME, checksum, decode
from deviceplugin._platform.checkpoint import Entry as Recorded
from deviceplugin.kit import files
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager.records import Entry, Grant


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
        found = decode((directory / FILE_NAME).read_bytes())
    except FileNotFoundError:
        raise CheckpointError("checkpoint is not found") from None
    except ValueError:
        raise CheckpointError("checkpoint is corrupted") from None
    entries = tuple(_granted(entry) for entry in found.entries)
    return Checkpoint(tuple(entry for entry in entries if entry), found.registered)


def _encode(entry: Entry) -> dict[str, Any]:
    nodes = sorted(entry.grant.nodes.items(), key=lambda pair: str(pair[0]))
    return {
        "PodUID": entry.pod,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(node): list(ids) for node, ids in nodes},
        "AllocResp": base64.b64encode(entry.grant.response.SerializeToString()).decode(),
    }


def _granted(entry: Recorded) -> Entry | None:
    """Return the entry, or None if the plugin's answer in it cannot be read."""
    try:
        response = pb.ContainerAllocateResponse.FromString(entry.response)
    except DecodeError:
        return None
    nodes = {node: tuple(ids) for node, ids in entry.devices.items()}
    return Entry(entry.pod, entry.container, entry.resource, Grant(nodes, response))
