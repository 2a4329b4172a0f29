"""Calling the plugins of a simulated kubelet directly, without any bookkeeping."""

from collections.abc import Iterable
from typing import Any

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._kubelet.view import KubeletView


class KubeletCalls(KubeletView):
    """The calls of a simulated kubelet. Only ``SimulatedKubelet`` derives from it."""

    def hang_up(self, resource: str) -> None:
        """Close the connection to the resource's plugin. Its stream ends, its devices are lost.

        Raises:
            LookupError: The kubelet has no connection for ``resource``.
        """
        if self._process is None or not self._process.connections.disconnect(resource):
            raise LookupError(f"{resource} has no connection; {self._state()}")

    def allocate(
        self, resource: str, ids: Iterable[str], *, timeout: float | None = 10.0
    ) -> pb.ContainerAllocateResponse:
        """Call Allocate for these devices and return the answer, without any bookkeeping.

        Raises:
            grpc.RpcError: The plugin answered with an error.
            LookupError: The resource has no plugin, or the answer has no container.
        """
        requests = [pb.ContainerAllocateRequest(devices_ids=ids)]
        response = self.call(
            resource, "Allocate", pb.AllocateRequest(container_requests=requests), timeout
        )
        if not response.container_responses:
            raise LookupError(f"{resource} answered Allocate for no container")
        answer: pb.ContainerAllocateResponse = response.container_responses[0]
        return answer

    def prefer(
        self,
        resource: str,
        available: Iterable[str],
        required: Iterable[str],
        size: int,
        *,
        timeout: float | None = 10.0,
    ) -> list[str]:
        """Call GetPreferredAllocation and return the answer; errors as in ``allocate``."""
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        response = self.call(
            resource,
            "GetPreferredAllocation",
            pb.PreferredAllocationRequest(container_requests=[request]),
            timeout,
        )
        return [id_ for answer in response.container_responses[:1] for id_ in answer.deviceIDs]

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float | None = 30.0) -> None:
        """Call PreStartContainer for these devices; errors as in ``allocate``."""
        self.call(
            resource, "PreStartContainer", pb.PreStartContainerRequest(devices_ids=ids), timeout
        )

    def call(self, resource: str, method: str, request: Any, timeout: float | None) -> Any:
        """Call a method of the plugin and return its answer unchanged; errors as in ``allocate``.

        There are no checks and no bookkeeping.
        """
        return self._client(resource).call(method, request, timeout)
