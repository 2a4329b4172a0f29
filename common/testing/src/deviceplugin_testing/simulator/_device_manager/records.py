"""Which container holds which devices."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

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
        """The ids of all devices."""
        return frozenset(id_ for ids in self.nodes.values() for id_ in ids)

    def nodes_of(self, wanted: str) -> list[int]:
        """Return the NUMA nodes of the device ``wanted``; an empty list if it has none."""
        return sorted(node for node, ids in self.nodes.items() if node >= 0 and wanted in ids)


@dataclass(frozen=True, slots=True)
class Entry:
    """A grant and the container that has it."""

    pod: str
    container: str
    resource: str
    grant: Grant


class Records:
    """All grants. The manager's lock guards them."""

    def __init__(self) -> None:
        self._grants: dict[tuple[str, str, str], Grant] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter([Entry(*key, grant) for key, grant in self._grants.items()])

    def insert(self, entry: Entry) -> None:
        """Store ``entry``, and replace what the container had of that resource."""
        self._grants[entry.pod, entry.container, entry.resource] = entry.grant

    def get(self, pod: str, container: str, resource: str) -> Grant | None:
        """Return the container's grant of the resource, or None."""
        return self._grants.get((pod, container, resource))

    def of_container(self, pod: str, container: str) -> dict[str, Grant]:
        """Return the container's grants by resource."""
        return {
            entry.resource: entry.grant
            for entry in self
            if (entry.pod, entry.container) == (pod, container)
        }

    def of_pod(self, pod: str, resource: str) -> frozenset[str]:
        """Return the ids of all devices of the resource that the pod has."""
        mine = [e.grant.ids for e in self if (e.pod, e.resource) == (pod, resource)]
        return frozenset().union(*mine)

    @property
    def pods(self) -> frozenset[str]:
        """The uids of all pods with grants."""
        return frozenset(pod for pod, _, _ in self._grants)

    def forget(self, pods: Iterable[str]) -> None:
        """Drop all grants of these pods."""
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
