"""The simulated kubelet as one of two twins."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deviceplugin_testing.simulator import (
    Behaviour,
    ContainerStartError,
    KubeletConfig,
    ManualClock,
    Pod,
    SimulatedKubelet,
)
from kubelets.chance import InOrder


class Simulated:
    """The simulated kubelet; chance takes what comes first."""

    def __init__(self, root: Path, config: KubeletConfig, behaviour: Behaviour) -> None:
        self._clock = ManualClock()
        self._kubelet = SimulatedKubelet(
            root, clock=self._clock, config=config, behaviour=behaviour
        )
        self._kubelet._host.rng = InOrder()
        self._lists: Mapping[str, int] = {}

    def start(self, pods: Sequence[Pod], running: Sequence[tuple[str, str]]) -> None:
        """Start with these pods and running containers on the node."""
        for pod in pods:
            state = self._kubelet.pod(pod)
            state.running = {name for uid, name in running if uid == pod.uid}
        self._lists = dict(self._kubelet.metrics.lists)
        self._kubelet.start(readmit=False)

    def stop(self) -> None:
        self._kubelet.stop()

    def progress(self) -> tuple[Mapping[str, int], Mapping[str, int], bool]:
        """Return lists taken in and open streams, by resource, and whether some must end."""
        connections = self._kubelet._live().connections
        with self._kubelet._host.changed:
            come = self._kubelet.metrics.lists - Counter(self._lists)
            clients = [client for client in connections._open if client.streaming]
            streams = Counter(client.resource for client in clients)
            return come, streams, any(client._closed for client in clients)

    def admit(self, pod: Pod) -> tuple[str, str]:
        """Admit a pod and return reason and message of its rejection."""
        outcome = self._kubelet.admit(pod)
        return outcome.reason, outcome.event

    def resize(self, pod: Pod) -> tuple[str, str]:
        outcome = self._kubelet.resize(pod)
        return outcome.reason, outcome.event

    def readmit(self, _pods: Sequence[Pod]) -> list[tuple[str, str]]:
        """Admit the pods from before the start."""
        return [(outcome.reason, outcome.event) for outcome in self._kubelet.readmit()]

    def run(self, pod: Pod, container: str) -> Any:
        """Prepare a container and return its variables, or why it cannot start."""
        try:
            options = self._kubelet.run_options(pod, container)
        except ContainerStartError as error:
            return str(error)
        return None if options is None else dict(options.envs)

    def end(self, pod: Pod) -> None:
        self._kubelet.terminate(pod)

    def collect(self) -> None:
        self._kubelet._live().manager.collect()

    def tick(self) -> None:
        self._kubelet.tick()

    def expire(self) -> None:
        self._clock.advance(301)

    def pokes(self) -> list[list[str]]:
        """Return and forget whose status was to be looked at."""
        return [sorted(pods) for pods in self._kubelet.take_pokes()]

    def health(self, pod: Pod) -> Any:
        return self._kubelet.device_health(pod)

    def state(self) -> dict[str, Any]:
        manager = self._kubelet._live().manager
        with self._kubelet._host.changed:
            return {
                "endpoints": {
                    name: "stopped" if each.stopped else "running"
                    for name, each in manager.endpoints.items()
                },
                "devices": {
                    name: {id_: device.health for id_, device in listed.items()}
                    for name, listed in manager.devices.items()
                },
                "healthy": _lists(manager.healthy),
                "unhealthy": _lists(manager.unhealthy),
                "allocated": _lists(manager.allocated),
                "grants": sorted(
                    [e.pod, e.container, e.resource, _lists(e.grant.nodes)] for e in manager.records
                ),
                "capacity": dict(self._kubelet.node.capacity),
                "allocatable": dict(self._kubelet.node.allocatable),
            }


def _lists(known: Mapping[Any, Iterable[str]]) -> dict[Any, list[str]]:
    return {name: sorted(ids) for name, ids in known.items()}
