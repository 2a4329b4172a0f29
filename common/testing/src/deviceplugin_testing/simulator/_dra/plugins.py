"""One registered instance of a DRA driver, and the kubelet's connection to it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.dra import V1, V1BETA1, dra_health_v1alpha1_pb2, dra_v1_pb2, dra_v1beta1_pb2
from deviceplugin_testing.simulator._errors import CallError
from deviceplugin_testing.simulator._wire.channel import LARGEST_MESSAGE, connectivity
from deviceplugin_testing.simulator._wire.errors import ClientClosed, go_error
from deviceplugin_testing.simulator._wire.paths import dialled_path

SERVICES: Final = {
    V1: dra_v1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"],
    V1BETA1: dra_v1beta1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"],
}
"""The services that a kubelet may choose, by the names under which drivers register them."""
_HEALTH: Final = dra_health_v1alpha1_pb2.DESCRIPTOR.services_by_name["DRAResourceHealth"]


class DriverPlugin:
    """An instance of ``driver`` at the socket ``endpoint``, which is dialled until it is closed."""

    def __init__(self, driver: str, endpoint: str, service: str, timeout: float) -> None:
        """Connect in the background; calls use ``service`` and take at most ``timeout`` seconds.

        Raises:
            ValueError: ``endpoint`` has an invalid escape.
        """
        self.driver = driver
        self.endpoint = endpoint
        self.service = service
        self.connected = False
        """Whether the socket answers. The owner sets it."""
        self.health_due: float | None = None
        """When to ask for the stream of health again; None while it is open."""
        self._timeout = timeout
        self._channel = rpc.connect(
            dialled_path(endpoint),
            default_authority="localhost",
            max_receive_message_length=LARGEST_MESSAGE,
        )
        self._calls: Mapping[str, Any] = rpc.calls(self._channel, SERVICES[service])
        self._stream: grpc.Call | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call ``changed`` whenever the socket begins or ceases to answer, until it is closed."""

        def run() -> None:
            for connected in connectivity(self._channel):
                changed(connected)

        self.spawn(run)

    def spawn(self, run: Callable[[], None]) -> None:
        """Run a thread that ends once this is closed."""
        thread = threading.Thread(target=run, name=f"dra-{self.driver}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def call(self, method: str, claims: Sequence[dra_v1_pb2.Claim]) -> Mapping[str, Any]:
        """Call a method for ``claims`` and return its answers, by UID.

        Raises:
            CallError: The call failed. The message is the kubelet's.
        """
        request = {
            "NodePrepareResources": dra_v1_pb2.NodePrepareResourcesRequest,
            "NodeUnprepareResources": dra_v1_pb2.NodeUnprepareResourcesRequest,
        }[method](claims=claims)
        try:
            # The messages of both versions are the same bytes.
            response = self._calls[method](request, timeout=self._timeout)
        except ValueError:
            raise CallError(go_error(ClientClosed(), self.endpoint)) from None
        except grpc.RpcError as error:
            raise CallError(go_error(error, self.endpoint)) from None
        answers: Mapping[str, Any] = response.claims
        return answers

    def reports(self) -> Iterator[dra_health_v1alpha1_pb2.NodeWatchResourcesResponse]:
        """Yield the reports of health until the stream ends, for whatever reason."""
        try:
            calls = rpc.calls(self._channel, _HEALTH)
            self._stream = calls["NodeWatchResources"](
                dra_health_v1alpha1_pb2.NodeWatchResourcesRequest()
            )
            yield from self._stream  # type: ignore[misc]
        except (grpc.RpcError, ValueError):  # ValueError: closed before the call
            return

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Close the connection; calls in flight fail."""
        self._closed = True
        self._channel.close()

    def join(self) -> None:
        """Wait for its threads, which must have been closed."""
        for thread in self._threads:
            thread.join()
