"""The device manager's topology hints."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod
from deviceplugin_testing.simulator._topology import Hint, ProviderHints, mask, masks

_WHERE = "generateDeviceTopologyHints"


class HintProvider:
    """Computes the NUMA nodes on which the devices of a container, or of a pod, could be."""

    def __init__(self, host: Host, manager: DeviceManager) -> None:
        self._host = host
        self._manager = manager

    def for_container(
        self, pod: Pod, container: Container, reusable: Mapping[str, AbstractSet[str]]
    ) -> ProviderHints:
        """Return the hints for one container, which may get the ``reusable`` devices again."""
        self._manager.collect()
        hints: dict[str, Sequence[Hint] | None] = {}
        with self._host.changed:
            for resource, wanted in container.limits.items():
                if self._manager.manages(resource):
                    grant = self._manager.records.get(pod.uid, container.name, resource)
                    held = grant.ids if grant else frozenset()
                    again = reusable.get(resource, frozenset())
                    hints[resource] = self._for_resource(resource, wanted, held, again)
        return hints

    def for_pod(self, pod: Pod) -> ProviderHints:
        """Return the hints for all of the pod's containers together."""
        self._manager.collect()
        hints: dict[str, Sequence[Hint] | None] = {}
        with self._host.changed:
            for resource in sorted(pod.resources):
                if self._manager.manages(resource):
                    held = self._manager.records.of_pod(pod.uid, resource)
                    wanted = pod.request(resource)
                    hints[resource] = self._for_resource(resource, wanted, held, frozenset())
        return hints

    def _for_resource(
        self, resource: str, wanted: int, held: AbstractSet[str], reusable: AbstractSet[str]
    ) -> Sequence[Hint] | None:
        if not self._manager.has_topology(resource):
            return None
        if held:
            if len(held) != wanted:
                return []
            return self._generate(resource, held, frozenset(), wanted)
        used = self._manager.allocated.get(resource, set())
        available = self._manager.healthy.get(resource, set()) - used
        if len(available | reusable) < wanted:
            return []
        return self._generate(resource, available, reusable, wanted)

    def _generate(
        self,
        resource: str,
        available: AbstractSet[str],
        reusable: AbstractSet[str],
        wanted: int,
    ) -> list[Hint]:
        listed = self._masks(resource, self._manager.devices[resource].keys())
        free = self._masks(resource, available)
        again = [nodes for nodes in self._masks(resource, reusable) if nodes]
        sizes, fitting = [], []
        for nodes in masks(self._numa_nodes(listed)):
            if sum(bool(each & nodes) for each in listed) >= wanted:
                sizes.append(nodes.bit_count())
            # The hint is invalid unless all reusable devices are near.
            matching = len(again) + sum(bool(each & nodes) for each in free)
            if all(each & nodes for each in again) and matching >= wanted:
                fitting.append(nodes)
        smallest = min(sizes, default=len(self._host.config.numa_nodes))
        return [Hint(nodes, nodes.bit_count() == smallest) for nodes in fitting]

    def _masks(self, resource: str, ids: AbstractSet[str]) -> list[int]:
        return [mask(self._manager.nodes_of(resource, id_, _WHERE)) for id_ in sorted(ids)]

    def _numa_nodes(self, listed: Sequence[int]) -> list[int]:
        """Return the machine's NUMA nodes that have devices, or all of them if none has.

        Before Kubernetes 1.36, it is always all of them.
        """
        machine = self._host.config.numa_nodes
        if not self._host.release.hints_need_devices:
            return list(machine)
        with_devices = [node for node in machine if any(each >> node & 1 for each in listed)]
        return with_devices or list(machine)
