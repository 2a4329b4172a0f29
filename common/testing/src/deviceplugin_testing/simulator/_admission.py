"""Admission of pods: one at a time, while everything else on the node waits."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from deviceplugin_testing.simulator._device_manager.allocating import Allocator
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._device_manager.topology_hints import (
    HintProvider,
    ProviderHints,
    affinity,
)
from deviceplugin_testing.simulator._errors import AllocationRefusedError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Outcome, Pod, PodState


class _RejectionError(Exception):
    """A pod cannot run here."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SyncLoop:
    """The kubelet's main loop: while one operation waits for a plugin, all others wait."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._since: float | None = None
        self.busy_with = ""
        """The operation that is running."""

    @contextmanager
    def operation(self, what: str) -> Iterator[None]:
        """Wait for other operations, and keep them out of the context."""
        with self._lock:
            self._set(what, self._host.clock())
            try:
                yield
            finally:
                self._set("", None)

    def _set(self, what: str, since: float | None) -> None:
        with self._host.changed:
            self.busy_with, self._since = what, since
            self._host.notify()

    @property
    def stalled(self) -> bool:
        """Whether an operation takes so long that the kubelet reports itself unhealthy."""
        with self._host.changed:
            since = self._since
        return since is not None and (
            self._host.clock() - since > self._host.config.sync_loop_patience
        )


class Admission:
    """Admits or rejects pods: by topology hints, allocation, and a check of the node's capacity."""

    def __init__(
        self, host: Host, manager: DeviceManager, allocator: Allocator, loop: SyncLoop
    ) -> None:
        self._host = host
        self._manager = manager
        self._allocator = allocator
        self._hints = HintProvider(host, manager)
        self._loop = loop

    def admit(self, pod: Pod) -> Outcome:
        """Admit or reject a pod. A rejected one has failed and cannot be admitted again."""
        with self._host.changed:
            if pod.uid in self._manager.admitted:
                raise ValueError(f"pod {pod.uid} was admitted before")
            state = self._host.pods.setdefault(pod.uid, PodState(pod))
            if state.terminal:
                raise ValueError(f"pod {pod.uid} has ended")
            self._check_sidecars(pod)
            self._host.notify()
        return self._admit(state)

    def _admit(self, state: PodState) -> Outcome:
        pod = state.pod
        with self._loop.operation(f"admitting pod {pod.uid}"), self._manager.admitting(pod.uid):
            outcome = self._decide(pod)
            with self._host.changed:
                self._conclude(state, outcome)
        return outcome

    def _conclude(self, state: PodState, outcome: Outcome) -> None:
        if outcome:
            self._manager.admitted.add(outcome.pod.uid)
        else:
            state.phase, state.reason, state.message = "Failed", outcome.reason, outcome.message
            state.running.clear()
        self._host.notify()

    def resize(self, pod: Pod) -> Outcome:
        """Run the same checks for an admitted pod, as an in-place resize does.

        The pod keeps running in any case.
        """
        with self._loop.operation(f"resizing pod {pod.uid}"):
            return self._decide(pod)

    @property
    def to_readmit(self) -> list[PodState]:
        """The pods from before the kubelet's start that are not admitted yet."""
        with self._host.changed:
            return [
                state
                for uid, state in self._host.pods.items()
                if uid not in self._manager.admitted
                and (self._host.release.readmits_ended or not state.terminal)
            ]

    def readmit(self) -> list[Outcome]:
        outcomes = [self._admit(state) for state in self.to_readmit]
        with self._host.changed:
            self._manager.sources_ready = True
            self._host.notify()
        return outcomes

    def _decide(self, pod: Pod) -> Outcome:
        self._manager.check_alive()
        others = self._others(pod)
        try:
            self._place(pod)
            self._forbid_sidecars(pod)
            self._check_node(pod, others)
        except _RejectionError as rejection:
            return self._reject(pod, rejection)
        return Outcome(pod, self.devices(pod))

    def devices(self, pod: Pod) -> dict[str, dict[str, frozenset[str]]]:
        """Return what the pod's containers hold: container to resource to ids."""
        with self._host.changed:
            held = {
                container.name: self._manager.records.of_container(pod.uid, container.name)
                for container in pod.all_containers
            }
            return {
                name: {resource: grant.ids for resource, grant in grants.items()}
                for name, grants in held.items()
            }

    def _reject(self, pod: Pod, rejection: _RejectionError) -> Outcome:
        with self._host.changed:
            self._host.metrics.admission_rejections_total[rejection.reason] += 1
        message = str(rejection)
        return Outcome(
            pod,
            reason=rejection.reason,
            message=f"Pod was rejected: {message}",
            event=message,
        )

    def _place(self, pod: Pod) -> None:
        pod_scope = self._host.config.topology_scope == "pod"
        if pod_scope and self._host.config.topology_policy != "none":
            nodes = self._affinity(lambda: self._hints.for_pod(pod))
            for container in pod.all_containers:
                self._allocate(pod, container, nodes)
            return
        for container in pod.all_containers:
            self._allocate(pod, container, self._container_affinity(pod, container))

    def _container_affinity(self, pod: Pod, container: Container) -> int | None:
        reusable = self._allocator.reusable(pod)
        return self._affinity(lambda: self._hints.for_container(pod, container, reusable))

    def _affinity(self, hints: Callable[[], ProviderHints]) -> int | None:
        config = self._host.config
        if config.topology_policy == "none":
            return None
        nodes, admitted = affinity(config.topology_policy, [hints()], config.numa_nodes)
        if not admitted:
            self._host.metrics.topology_manager_admission_errors_total += 1
            raise _RejectionError(
                "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
            )
        return nodes

    def _allocate(self, pod: Pod, container: Container, nodes: int | None) -> None:
        self._allocator.affinities[pod.uid, container.name] = nodes
        try:
            self._allocator.allocate(pod, container)
        except AllocationRefusedError as error:
            if self._host.config.topology_policy != "none":
                self._host.metrics.topology_manager_admission_errors_total += 1
            raise _RejectionError(
                "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected"
            ) from None

    def _check_sidecars(self, pod: Pod) -> None:
        release = self._host.release
        if _sidecars(pod) and not release.knows_sidecars:
            raise ValueError(f"pod {pod.uid}: Kubernetes {release.name} has no sidecars")

    def _forbid_sidecars(self, pod: Pod) -> None:
        for container in () if self._host.release.admits_sidecars else _sidecars(pod):
            raise _RejectionError(
                "InitContainerRestartPolicyForbidden",
                f'Init container "{container.name}" may not have a non-default restartPolicy',
            )

    def _others(self, pod: Pod) -> list[Pod]:
        """Return the other active pods. A pod that ends during an admission still counts."""
        with self._host.changed:
            states = self._host.pods.items()
            return [s.pod for uid, s in states if uid != pod.uid and self._manager.active(uid)]

    def _check_node(self, pod: Pod, others: Sequence[Pod]) -> None:
        """Compare with the node object, which can be older than the device manager's state."""
        with self._host.changed:
            allocatable = self._allocatable(pod)
            for resource in self._host.shuffled(pod.resources & allocatable.keys()):
                claims = not self._host.release.leaves_claimed
                wanted, capacity = pod.request(resource, claims=claims), allocatable[resource]
                used = sum(other.request(resource) for other in others)
                # A request for 0 devices fits even if more are used than exist.
                if wanted and wanted > capacity - used:
                    raise _RejectionError(
                        f"OutOf{resource}",
                        f"Node didn't have enough resource: {resource}, "
                        f"requested: {wanted}, used: {used}, capacity: {capacity}",
                    )

    def _allocatable(self, pod: Pod) -> dict[str, int]:
        """Return the allocatable numbers; for a pod with devices, at least what is allocated."""
        allocatable = dict(self._host.node.allocatable)
        if pod.uid in self._manager.records.pods:
            for resource, ids in self._manager.allocated.items():
                allocatable[resource] = max(allocatable.get(resource, 0), len(ids))
        return allocatable


def _sidecars(pod: Pod) -> list[Container]:
    return [each for each in pod.init_containers if each.restarts_always]
