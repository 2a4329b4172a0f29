"""Which plugin holds which resource, kept as the kubelet keeps it."""

import threading
from collections.abc import Callable

import grpc

from deviceplugin.simulator._clients import DialError, PluginClient
from deviceplugin.simulator._manager import DeviceManager
from deviceplugin.simulator._wire import go_error
from deviceplugin.v1beta1 import deviceplugin_pb2 as pb


class ConnectError(Exception):
    """A plugin could not be connected; the message is what the plugin is told."""


class Connections:
    """The current client of each resource, and the threads that read their streams.

    A client is known by its resource's name alone. So when the stream of a replaced plugin ends,
    it is the plugin that replaced it that is disconnected; this is how Kubernetes 1.36 behaves.
    """

    def __init__(
        self,
        manager: DeviceManager,
        changed: threading.Condition,
        *,
        dial_timeout: float,
        listed: Callable[[str], None],
    ) -> None:
        self._manager = manager
        self._changed = changed
        self._dial_timeout = dial_timeout
        self._listed = listed
        self._clients: dict[str, PluginClient] = {}
        self._all: set[PluginClient] = set()
        self._readers: set[threading.Thread] = set()
        self._closed = False

    def connect(self, resource: str, path: str, context: grpc.ServicerContext) -> None:
        """Make the plugin at ``path`` the resource's plugin and read its lists from now on."""
        client = PluginClient(resource, path)
        with self._changed:
            if self._closed:
                raise ConnectError("the kubelet has stopped")
            self._clients[resource] = client
            self._all.add(client)
        try:
            options = self._greet(client, context)
        except ConnectError:
            with self._changed:
                self._clients.pop(resource, None)
                self._all.discard(client)
            client.close()
            raise
        self._manager.connected(client, options)
        self._read(client)

    def _greet(self, client: PluginClient, context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        try:
            client.dial(self._dial_timeout)
            return client.options(context)
        except DialError as error:
            raise ConnectError(f"failed to dial device plugin: {error}") from None
        except grpc.FutureCancelledError:
            raise ConnectError(
                "failed to get device plugin options: "
                "rpc error: code = Canceled desc = context canceled"
            ) from None
        except grpc.RpcError as error:
            raise ConnectError(f"failed to get device plugin options: {go_error(error)}") from None

    def _read(self, client: PluginClient) -> None:
        reader = threading.Thread(
            target=self._run, args=(client,), name=f"list-{client.resource}", daemon=True
        )
        with self._changed:
            if self._closed:
                return
            client.streaming = True
            self._readers.add(reader)
            self._changed.notify_all()
        reader.start()

    def _run(self, client: PluginClient) -> None:
        for response in client.lists():
            with self._changed:
                if self._closed:
                    break
                self._listed(client.resource)
                self._manager.listed(client.resource, response.devices)
        with self._changed:
            client.streaming = False
            self._readers.discard(threading.current_thread())
            closed = self._closed
            self._changed.notify_all()
        if not closed:
            self.disconnect(client.resource)

    def disconnect(self, resource: str) -> bool:
        """Hang up on the resource's current plugin; False where there is none."""
        with self._changed:
            client = self._clients.pop(resource, None)
            if client is None:
                return False
            self._manager.disconnected(resource)
        client.close()
        return True

    def close(self) -> None:
        """Hang up on everybody and wait for the readers."""
        with self._changed:
            self._closed = True
            clients, readers = list(self._all), list(self._readers)
        for client in clients:
            client.close()
        for reader in readers:
            reader.join()
