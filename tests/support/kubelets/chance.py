"""What random histories of kubelets are made of."""

import random
from collections.abc import Sequence
from typing import Any, Final

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Container, KubeletConfig, Pod

RESOURCES: Final = ("x.io/one", "y.io/two")
_IDS: Final = {"x.io/one": ("a", "b", "c", "d"), "y.io/two": ("d", "m", "n", "o")}
_NODES: Final[Sequence[Sequence[int]]] = ([0], [1], [0], [1], [0, 1], [2])
_ODD_NODES: Final[Sequence[Sequence[int]]] = ([], [7], [0, 7])


class InOrder(random.Random):
    """Chance that always takes what comes first."""

    def sample(self, population: Sequence[Any], k: int, **_: Any) -> list[Any]:
        """Return the first ``k`` of ``population``."""
        return list(population)[:k]


class Chance(random.Random):
    """Draws configurations, devices and pods. The seed decides everything."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._topology = self.choice(["none", "all", "mixed"])

    def happens(self, probability: float) -> bool:
        """Whether what has this probability happens."""
        return self.random() < probability

    def config(self) -> KubeletConfig:
        """Return how a kubelet is configured."""
        return KubeletConfig(
            topology_policy=self.choice(["none", "best-effort", "restricted", "single-numa-node"]),
            topology_scope=self.choice(["container", "pod"]),
            numa_nodes=self.choice([(0,), (0, 1), (0, 1), (0, 1, 2)]),
            watch_interval=None,
        )

    def options(self) -> pb.DevicePluginOptions:
        """Return what a plugin wants."""
        return pb.DevicePluginOptions(
            pre_start_required=self.happens(0.4),
            get_preferred_allocation_available=self.happens(0.5),
        )

    def ids(self, resource: str, count: int) -> list[str]:
        """Return ids of some of the resource's devices."""
        return self.sample(_IDS[resource], count)

    def devices(self, resource: str) -> list[pb.Device]:
        """Return a list of the resource's devices."""
        ids = [id_ for id_ in _IDS[resource] if self.happens(0.85)]
        if ids and self.happens(0.05):
            ids.append(self.choice(ids))
        return [self._device(id_) for id_ in ids]

    def _device(self, id_: str) -> pb.Device:
        device = pb.Device(ID=id_, health=self.choice(["Healthy"] * 5 + ["Unhealthy", "odd"]))
        mixed = self._topology == "mixed"
        if self._topology == "all" or (mixed and self.happens(0.5)):
            device.topology.SetInParent()
            nodes = self.choice(_ODD_NODES if mixed and self.happens(0.3) else _NODES)
            device.topology.nodes.extend(pb.NUMANode(ID=node) for node in nodes)
        return device

    def pod(self, name: str) -> Pod:
        """Return a pod."""
        init = [self._container(f"i{n}") for n in range(self.choice([0, 0, 1, 2]))]
        main = [self._container(f"c{n}") for n in range(self.choice([1, 1, 2]))]
        return Pod(name, main, init)

    def resized(self, pod: Pod) -> Pod:
        """Return the pod, half of the time with other limits."""
        if self.happens(0.5):
            return pod
        containers = [Container(each.name, self._limits()) for each in pod.containers]
        return Pod(pod.name, containers, pod.init_containers)

    def _container(self, name: str) -> Container:
        limits = self._limits()
        claimed = frozenset(resource for resource in limits if self.happens(0.05))
        always = name.startswith("i") and self.happens(0.4)
        return Container(name, limits, restarts_always=always, claimed=claimed)

    def _limits(self) -> dict[str, int]:
        wanted = (0, 1, 1, 1, 2, 2, 3, 4, 5)
        return {resource: self.choice(wanted) for resource in RESOURCES if self.happens(0.6)}


def shown(pod: Pod) -> str:
    """Return the pod in a line."""
    containers = [
        f"{each.name}{'+' if each.restarts_always else ''} {dict(each.limits)}"
        + (f" of which claimed {sorted(each.claimed)}" if each.claimed else "")
        for each in pod.all_containers
    ]
    return f"{pod.name}: {', '.join(containers)}"


def shown_devices(devices: Sequence[pb.Device]) -> str:
    """Return the list in a line."""
    return " ".join(f"{d.ID}:{d.health}@{[node.ID for node in d.topology.nodes]}" for d in devices)
