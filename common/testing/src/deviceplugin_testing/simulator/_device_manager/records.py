"""Which container holds which devices, in memory and in the kubelet's checkpoint."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from deviceplugin._platform.checkpoint import FILE_NAME, checksum, decode
from deviceplugin._platform.checkpoint import Entry as Recorded
from deviceplugin.kit import files
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

NO_NODE = -1
"""The NUMA node of a device that has none."""


def numa_nodes(device: pb.Device) -> tuple[int, ...]:
    """Return the NUMA nodes that ``device`` was listed with."""
    return tuple(node.ID for node in device.topology.nodes)


@dataclass(frozen=True, slots=True)
class Grant:
    """The devices of one resource that one container got."""

    nodes: Mapping[int, tuple[str, ...]]
    """NUMA node to ids. A device near several nodes occurs several times."""
    response: pb.ContainerAllocateResponse

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(id_ for ids in self.nodes.values() for id_ in ids)

    def nodes_of(self, wanted: str) -> list[int]:
        """Return the NUMA nodes of the device ``wanted``; an empty list if it has none."""
        return sorted(node for node, ids in self.nodes.items() if node >= 0 and wanted in ids)


@dataclass(frozen=True, slots=True)
class HeldGrant:
    pod: str
    container: str
    resource: str
    grant: Grant


class Records:
    """All grants. The manager's lock guards them."""

    def __init__(self) -> None:
        self._grants: dict[tuple[str, str, str], Grant] = {}

    def __iter__(self) -> Iterator[HeldGrant]:
        return iter([HeldGrant(*key, grant) for key, grant in self._grants.items()])

    def insert(self, entry: HeldGrant) -> None:
        """Store ``entry``, and replace what the container had of that resource."""
        self._grants[entry.pod, entry.container, entry.resource] = entry.grant

    def get(self, pod: str, container: str, resource: str) -> Grant | None:
        return self._grants.get((pod, container, resource))

    def of_container(self, pod: str, container: str) -> dict[str, Grant]:
        return {
            entry.resource: entry.grant
            for entry in self
            if (entry.pod, entry.container) == (pod, container)
        }

    def of_pod(self, pod: str, resource: str) -> frozenset[str]:
        mine = [e.grant.ids for e in self if (e.pod, e.resource) == (pod, resource)]
        return frozenset().union(*mine)

    @property
    def pods(self) -> frozenset[str]:
        return frozenset(pod for pod, _, _ in self._grants)

    def forget(self, pods: Iterable[str]) -> None:
        gone = frozenset(pods)
        self._grants = {key: grant for key, grant in self._grants.items() if key[0] not in gone}

    @property
    def devices(self) -> dict[str, set[str]]:
        """Resource to the ids that any container has."""
        used: dict[str, set[str]] = {}
        for entry in self:
            used.setdefault(entry.resource, set()).update(entry.grant.ids)
        return used

    def owners(self, resource: str | None) -> dict[str, str]:
        """Return the first pod that has each device; of any resource if ``resource`` is None."""
        found: dict[str, str] = {}
        for entry in self:
            if resource in {None, entry.resource}:
                for id_ in entry.grant.ids:
                    found.setdefault(id_, entry.pod)
        return found


class CheckpointError(Exception):
    """There is no usable checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state that the device manager restores after a restart."""

    entries: tuple[HeldGrant, ...]
    registered: frozenset[str]
    """The names of the resources that had a plugin."""


def write_checkpoint(
    directory: Path, entries: Iterable[HeldGrant], healthy: Mapping[str, Iterable[str]]
) -> None:
    data = {
        "PodDeviceEntries": [_encode(entry) for entry in entries] or None,
        "RegisteredDevices": {name: sorted(ids) for name, ids in sorted(healthy.items())},
    }
    text = json.dumps(
        {"Data": data, "Checksum": checksum(data)}, separators=(",", ":"), ensure_ascii=False
    )
    files.write(directory / FILE_NAME, text, mode=0o600, durable=False, again=True)


def read_checkpoint(directory: Path) -> Checkpoint:
    """Return the checkpoint in ``directory``, or raise ``CheckpointError``."""
    try:
        found = decode((directory / FILE_NAME).read_bytes())
    except FileNotFoundError:
        raise CheckpointError("checkpoint is not found") from None
    except ValueError:
        raise CheckpointError("checkpoint is corrupted") from None
    entries = tuple(_granted(entry) for entry in found.entries)
    return Checkpoint(tuple(entry for entry in entries if entry), found.registered)


def _encode(entry: HeldGrant) -> dict[str, Any]:
    nodes = sorted(entry.grant.nodes.items(), key=lambda pair: str(pair[0]))
    return {
        "PodUID": entry.pod,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(node): list(ids) for node, ids in nodes},
        "AllocResp": base64.b64encode(entry.grant.response.SerializeToString()).decode(),
    }


def _granted(entry: Recorded) -> HeldGrant | None:
    """Return the entry, or None if the plugin's answer in it cannot be read."""
    try:
        response = pb.ContainerAllocateResponse.FromString(entry.response)
    except DecodeError:
        return None
    nodes = {node: tuple(ids) for node, ids in entry.devices.items()}
    return HeldGrant(entry.pod, entry.container, entry.resource, Grant(nodes, response))
