"""One registered instance of a DRA driver, and the kubelet's connection to it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.dra import (
    HEALTH,
    V1,
    V1BETA1,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
)
from deviceplugin_testing.simulator._errors import CallError
from deviceplugin_testing.simulator._host.host import Host, Key
from deviceplugin_testing.simulator._wire import (
    LARGEST_MESSAGE,
    ClientClosed,
    connectivity,
    dialled_path,
    go_error,
)

SERVICES: Final = {
    V1: dra_v1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"],
    V1BETA1: dra_v1beta1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"],
}
"""The services that a kubelet may choose, by the names under which drivers register them."""
HEALTH_V1: Final = "v1.DRAResourceHealth"
"""The service of Kubernetes 1.37, whose messages are the same bytes as those of v1alpha1."""


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
        self.health = HEALTH
        """The service of its reports of health; the owner sets it. Empty if there is none."""
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
        self.closed = False
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
        """Call a method for ``claims`` and return its answers, by UID; raise ``CallError``."""
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
            watch = self._channel.unary_stream(
                f"/{self.health}/NodeWatchResources",
                dra_health_v1alpha1_pb2.NodeWatchResourcesRequest.SerializeToString,
                dra_health_v1alpha1_pb2.NodeWatchResourcesResponse.FromString,
            )
            self._stream = watch(dra_health_v1alpha1_pb2.NodeWatchResourcesRequest())
            yield from self._stream
        except (grpc.RpcError, ValueError):  # ValueError: closed before the call
            return

    def close(self) -> None:
        """Close the connection; calls in flight fail."""
        self.closed = True
        self._channel.close()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


RETRY: Final = 5.0
"""Seconds after the end of a stream until the kubelet asks for it again."""


class HealthReader:
    """Reads the streams of all instances, and asks for one that ended again after 5 s."""

    def __init__(self, host: Host, changed: Callable[[str, set[Key]], None]) -> None:
        self._host = host
        self._changed = changed
        self._plugins: list[DriverPlugin] = []

    def read(self, plugin: DriverPlugin) -> None:
        """Read the stream of an instance until the instance is closed."""
        if not self._host.release.watches_dra_health or not plugin.health:
            return
        with self._host.changed:
            self._plugins = [each for each in self._plugins if not each.closed] + [plugin]
            self._open(plugin)

    def run(self) -> None:
        """Ask again for the streams for which it is time."""
        now = self._host.clock()
        with self._host.changed:
            for plugin in self._plugins:
                due = plugin.health_due
                if due is not None and due <= now and not plugin.closed:
                    self._open(plugin)

    def _open(self, plugin: DriverPlugin) -> None:
        plugin.health_due = None
        plugin.spawn(partial(self._follow, plugin))

    def _follow(self, plugin: DriverPlugin) -> None:
        for response in plugin.reports():
            with self._host.changed:
                changed = self._host.dra_health.update(plugin.driver, response.devices)
                self._changed(plugin.driver, changed)
                self._host.notify()
        with self._host.changed:
            self._host.dra_health.clear(plugin.driver)
            plugin.health_due = self._host.clock() + RETRY
            self._host.notify()
