"""The pod resources API, which reports to monitoring agents who has which device."""

import time
from collections.abc import Callable, Iterator, Sequence

import grpc

from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._dra.claims import ContainerClaims
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod

_RATE = 100.0
_BURST = 10


class TokenBucket:
    """A rate limit of ``rate`` calls a second, with bursts of ``burst`` calls."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled = clock()

    def take(self) -> bool:
        """Return whether one more call is allowed now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class PodResources:
    """Serves PodResourcesLister. All clients and methods share one rate limit."""

    def __init__(
        self,
        host: Host,
        manager: DeviceManager,
        claims: ContainerClaims,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._manager = manager
        self._claims = claims
        self._bucket = TokenBucket(_RATE, _BURST, clock)

    def List(  # noqa: N802 - the wire's name
        self, _request: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        """Return all active pods, also those without devices.

        First it frees the devices of finished pods, which can do harm during an allocation.
        """
        self._admit("list", context)
        self._manager.collect()
        with self._host.changed:
            active_only = self._host.release.lists_active_only
            pods = self._active() if active_only else self._known()
            return pb.ListPodResourcesResponse(pod_resources=[self._describe(pod) for pod in pods])

    def Get(  # noqa: N802 - the wire's name
        self, request: pb.GetPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.GetPodResourcesResponse:
        """Return one active pod."""
        release = self._host.release
        if not release.knows_get:
            text = "unknown method Get for service v1.PodResourcesLister"
            context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
        self._admit("get", context)
        name, namespace = request.pod_name, request.pod_namespace
        with self._host.changed:
            found = [p for p in self._active() if (p.name, p.namespace) == (name, namespace)]
            if found and release.answers_get:
                return pb.GetPodResourcesResponse(pod_resources=self._describe(found[0]))
            self._host.metrics.pod_resources_endpoint_errors["get"] += 1
        text = f"pod {name} in namespace {namespace} not found"
        if not release.answers_get:
            text = "PodResources API Get method disabled"
        return context.abort(grpc.StatusCode.UNKNOWN, text)

    def GetAllocatableResources(  # noqa: N802 - the wire's name
        self, _request: pb.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pb.AllocatableResourcesResponse:
        """Return all healthy devices, in use or not."""
        self._admit("get_allocatable", context)
        with self._host.changed:
            return pb.AllocatableResourcesResponse(devices=list(self._allocatable()))

    def _admit(self, method: str, context: grpc.ServicerContext) -> None:
        with self._host.changed:
            allowed = not self._host.release.limits_rate or self._bucket.take()
            if allowed:
                self._host.metrics.pod_resources_endpoint_requests.update(["total", method])
        if not allowed:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    def _active(self) -> list[Pod]:
        pods = self._host.pods.items()
        return [state.pod for uid, state in pods if self._manager.active(uid)]

    def _known(self) -> list[Pod]:
        return [state.pod for state in self._host.pods.values()]

    def _describe(self, pod: Pod) -> pb.PodResources:
        shown: Sequence[Container] = pod.containers
        if self._host.release.lists_sidecars:
            shown = [c for c in pod.all_containers if not pod.runs_once(c)]
        return pb.PodResources(
            name=pod.name,
            namespace=pod.namespace,
            containers=[
                pb.ContainerResources(
                    name=container.name,
                    devices=list(self._held(pod.uid, container.name)),
                    dynamic_resources=self._claimed(pod, container),
                )
                for container in shown
            ],
        )

    def _claimed(self, pod: Pod, container: Container) -> list[pb.DynamicResource]:
        lists = self._host.release.lists_claims and self._host.config.has_dra
        return self._claims.resources(pod, container) if lists else []

    def _held(self, pod: str, container: str) -> Iterator[pb.ContainerDevices]:
        for resource, grant in self._manager.records.of_container(pod, container).items():
            for id_ in sorted(grant.ids):
                yield from _entries(resource, id_, grant.nodes_of(id_) or None)

    def _allocatable(self) -> Iterator[pb.ContainerDevices]:
        for resource, healthy in self._manager.healthy.items():
            for id_ in sorted(healthy):
                device = self._manager.devices[resource][id_]
                nodes = [node.ID for node in device.topology.nodes]
                # There is one entry for each node, so a topology without nodes hides the device.
                yield from _entries(resource, id_, nodes if device.HasField("topology") else None)


def _entries(resource: str, id_: str, nodes: list[int] | None) -> Iterator[pb.ContainerDevices]:
    if nodes is None:
        yield pb.ContainerDevices(resource_name=resource, device_ids=[id_])
        return
    for node in nodes:
        topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
        yield pb.ContainerDevices(resource_name=resource, device_ids=[id_], topology=topology)
