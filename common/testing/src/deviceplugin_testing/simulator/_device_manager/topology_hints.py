"""Topology hints, and the topology manager's arithmetic: from hints to an affinity and a verdict.

A set of NUMA nodes is an integer with one bit for each node.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations, product
from typing import Final, NamedTuple

from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._host.config import TopologyPolicy
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod


class Hint(NamedTuple):
    """A set of nodes that can satisfy a request."""

    nodes: int | None
    """None means any nodes."""
    preferred: bool


ProviderHints = Mapping[str, Sequence[Hint] | None]
"""The hints of one provider by resource. None means no preference; an empty list, impossible."""

_ANYWHERE: Final = Hint(None, preferred=True)
_NOWHERE: Final = Hint(None, preferred=False)


def mask(nodes: Iterable[int]) -> int:
    """Return the set of these nodes; negative numbers are ignored."""
    return sum(1 << node for node in set(nodes) if node >= 0)


def masks(nodes: Sequence[int]) -> Iterator[int]:
    """Yield every non-empty set of ``nodes``, small ones first."""
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            yield mask(chosen)


def affinity(
    policy: TopologyPolicy, providers: Sequence[ProviderHints], numa_nodes: Sequence[int]
) -> tuple[int | None, bool]:
    """Return the nodes to allocate on, None for any, and whether the pod is admitted."""
    if policy == "none":
        return None, True
    hints = [given for provider in providers for given in _spelt_out(provider)]
    everywhere = mask(numa_nodes)
    if policy == "single-numa-node":
        best = _merge([_single(given) for given in hints], everywhere)
        if best.nodes == everywhere:
            best = Hint(None, best.preferred)
    else:
        best = _merge(hints, everywhere)
    return best.nodes, policy == "best-effort" or best.preferred


def _spelt_out(provider: ProviderHints) -> list[Sequence[Hint]]:
    if not provider:
        return [[_ANYWHERE]]
    return [[_ANYWHERE] if given is None else given or [_NOWHERE] for given in provider.values()]


def _single(hints: Sequence[Hint]) -> list[Hint]:
    return [
        hint for hint in hints if hint.preferred and (hint.nodes is None or _size(hint.nodes) == 1)
    ]


def _merge(hints: Sequence[Sequence[Hint]], everywhere: int) -> Hint:
    target = _target_size(hints)
    best: Hint | None = None
    for choice in product(*hints):
        candidate = _intersection(choice, everywhere)
        if candidate.nodes and (best is None or _better(candidate, best, target)):
            best = candidate
    return best or Hint(everywhere, preferred=False)


def _intersection(choice: Sequence[Hint], everywhere: int) -> Hint:
    """Return the nodes common to all. It is preferred if all hints are, and have the same nodes."""
    given = [hint.nodes for hint in choice if hint.nodes is not None]
    nodes = everywhere
    for each in given:
        nodes &= each
    return Hint(nodes, all(hint.preferred for hint in choice) and len(set(given)) <= 1)


def _target_size(hints: Sequence[Sequence[Hint]]) -> int:
    """Return the fewest nodes that suffice for each single resource."""
    sizes = [[_size(hint.nodes) for hint in given if hint.nodes is not None] for given in hints]
    return max((min(each) for each in sizes if each), default=0)


def _better(candidate: Hint, best: Hint, target: int) -> bool:
    if candidate.preferred != best.preferred:
        return candidate.preferred
    if candidate.preferred:
        return _narrower(candidate, best)
    return _closer(candidate, best, target)


def _closer(candidate: Hint, best: Hint, target: int) -> bool:
    """Return whether ``candidate`` is nearer to ``target`` nodes; fewer are better than more."""
    new, old = _size(candidate.nodes), _size(best.nodes)
    if old > target or new == old:
        return _narrower(candidate, best)
    return old < new <= target


def _narrower(candidate: Hint, best: Hint) -> bool:
    return (_size(candidate.nodes), candidate.nodes or 0) < (_size(best.nodes), best.nodes or 0)


def _size(nodes: int | None) -> int:
    return (nodes or 0).bit_count()


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
