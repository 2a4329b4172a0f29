"""The Registration service on kubelet.sock."""

import threading

import grpc

from deviceplugin.proto.v1beta1 import VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._control_plane.rules.names import is_extended_resource
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._device_manager.plugin_client import DialError, PluginClient
from deviceplugin_testing.simulator._errors import ConnectError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._wire import go_error, go_quote, socket_path


class Connections:
    """The current client of each resource, and the threads that read their streams.

    Before Kubernetes 1.37, the name of its resource alone identifies a client. So when the stream
    of a replaced plugin ends, the kubelet disconnects the plugin that replaced it. From 1.37 on it
    is known by resource and socket, and when it ends, another one is current.
    """

    def __init__(self, host: Host, manager: DeviceManager, *, dial_timeout: float) -> None:
        self._host = host
        self._manager = manager
        self._dial_timeout = dial_timeout
        self._current: dict[str, PluginClient] = {}
        self._others: dict[tuple[str, str], PluginClient] = {}
        """All that are connected, by resource and socket, from 1.37 on."""
        self._open: set[PluginClient] = set()
        self._readers: set[threading.Thread] = set()
        self._closed = False

    def connect(self, resource: str, path: str, context: grpc.ServicerContext | None) -> None:
        """Make the plugin at ``path`` the resource's plugin and read its lists from now on.

        The request for its options ends when ``context`` is no longer active.
        """
        client = PluginClient(resource, path)
        early = self._host.behaviour.failed_registration_orphans
        self._host.changed.until(lambda: self._take_up(client))
        with self._host.changed:
            if client not in self._open:
                raise ConnectError("the kubelet has stopped")
            self._host.notify()
            if early:
                self._current[resource] = client
        try:
            client.offered = self._greet(client, context)
            self._take_socket(client)
        except ConnectError:
            self._give_up(client)
            raise
        with self._host.changed:
            if not early:
                self._current[resource] = client
            self._manager.connected(client, client.offered)
            client.greeting = False
            self._read(client)
            if client.unwanted:
                self._manager.disconnected(resource)
        if client.unwanted:
            client.close()

    def _take_socket(self, client: PluginClient) -> None:
        with self._host.changed:
            if not self._host.release.tracks_sockets:
                return
            if (client.resource, client.path) in self._others:
                raise ConnectError(f"device plugin already connected: {client.path}")
            self._others[client.resource, client.path] = client

    def _take_up(self, client: PluginClient) -> bool:
        """Add the client to the open ones, unless the kubelet has stopped; return whether done.

        It must wait, and returns False, while a stream of its resource has ended and that has not
        been handled yet. On a busy machine, threads are late. As in a real kubelet, a stream that
        ended before a plugin registered must not disconnect that plugin.
        """
        if self._closed:
            return True
        others = (other for other in self._open if other.resource == client.resource)
        if any(other.streaming and other.ended for other in others):
            return False
        self._open.add(client)
        return True

    def _greet(
        self, client: PluginClient, context: grpc.ServicerContext | None
    ) -> pb.DevicePluginOptions:
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
            raise ConnectError(
                f"failed to get device plugin options: {go_error(error, client.path)}"
            ) from None

    def _give_up(self, client: PluginClient) -> None:
        with self._host.changed:
            self._open.discard(client)
            self._host.notify()
            if self._host.behaviour.failed_registration_orphans:
                self._current.pop(client.resource, None)
        client.close()

    def _read(self, client: PluginClient) -> None:
        reader = threading.Thread(
            target=self._run, args=(client,), name=f"list-{client.resource}", daemon=True
        )
        with self._host.changed:
            client.streaming = True
            self._readers.add(reader)
            self._host.notify()
            reader.start()

    def _run(self, client: PluginClient) -> None:
        try:
            for response in client.lists():
                self._listed(client, response)
            if not self._closed:
                self._stream_ended(client)
        finally:
            with self._host.changed:
                client.streaming = False
                self._readers.discard(threading.current_thread())
                self._host.notify()

    def _listed(self, client: PluginClient, response: pb.ListAndWatchResponse) -> None:
        with self._host.changed:
            if self._applies_lists_of(client):
                self._host.metrics.lists[client.resource] += 1
                self._host.observer.listed(client.resource, response.devices)
                self._manager.listed(client.resource, response.devices)

    def _applies_lists_of(self, client: PluginClient) -> bool:
        endpoint = self._manager.endpoints.get(client.resource)
        replaced = endpoint is not None and endpoint.client is not client
        still = self._host.behaviour.replaced_plugin_still_lists
        return not self._closed and (still or not replaced)

    def _stream_ended(self, client: PluginClient) -> None:
        if self._host.behaviour.stale_stream_disconnects_successor:
            self.disconnect(client.resource, once_greeted=True)
        elif self._host.release.tracks_sockets:
            self._lose(client)
        else:
            self.disconnect(client.resource, only=client)
            client.close()

    def _lose(self, client: PluginClient) -> None:
        """Forget a client; another one of its resource, any, has the resource then."""
        with self._host.changed:
            lost = self._others.pop((client.resource, client.path), None) is client
            rest = {path for resource, path in self._others if resource == client.resource}
            if lost and rest:
                chosen = self._others[client.resource, self._host.shuffled(rest)[0]]
                self._current[client.resource] = chosen
                self._manager.connected(chosen, chosen.offered)
            elif lost:
                self._current.pop(client.resource)
                self._manager.disconnected(client.resource)
        client.close()

    def disconnect_socket(self, resource: str, path: str) -> None:
        """Close the connection to the plugin at ``path``; before 1.37, to the resource's plugin."""
        with self._host.changed:
            client = self._others.get((resource, path))
        if client is not None:
            self._lose(client)
        elif not self._host.release.tracks_sockets:
            self.disconnect(resource)

    def disconnect(
        self, resource: str, *, only: PluginClient | None = None, once_greeted: bool = False
    ) -> bool:
        """Close the connection to the resource's current plugin; return False if there is none.

        If ``only`` is given and is not the current one, it does nothing. With ``once_greeted``, a
        connection that is being established is closed after that, so that its own errors are
        reported first.
        """
        with self._host.changed:
            client = self._current.get(resource)
            if client is None or only not in {None, client}:
                return False
            if self._host.release.tracks_sockets:
                self._lose(client)
                return True
            del self._current[resource]
            self._manager.disconnected(resource)
            client.unwanted = True
            at_once = not (once_greeted and client.greeting)
        if at_once:
            client.close()
        return True

    def close(self) -> None:
        """Close all connections and wait for the readers."""
        with self._host.changed:
            self._closed = True
            clients, readers = list(self._open), list(self._readers)
        for client in clients:
            client.close()
        for reader in readers:
            reader.join()


class Registration:
    """Answers Register. Every failure has the code UNKNOWN, as errors of a Go function do."""

    def __init__(self, host: Host, connections: Connections) -> None:
        self._host = host
        self._connections = connections

    def Register(  # noqa: N802 - the wire's name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Check the request, connect to the plugin and get its options.

        The options in the request are ignored.
        """
        path = socket_path(self._host.plugin_dir, request.endpoint)
        answered = self._host.observer.registering(request, path)
        refusal = self._register(request, path, context)
        with self._host.changed:
            answered(refusal)
            self._host.notify()
        if refusal:
            context.abort(grpc.StatusCode.UNKNOWN, refusal)
        return pb.Empty()

    def _register(
        self, request: pb.RegisterRequest, path: str, context: grpc.ServicerContext
    ) -> str:
        """Connect to the plugin. Return why that failed, or an empty string."""
        resource = request.resource_name
        with self._host.changed:
            self._host.metrics.device_plugin_registration_total[resource] += 1
            self._host.notify()
        if complaint := _complaint(request):
            return complaint
        try:
            bound = context if self._host.release.cancels_registration else None
            self._connections.connect(resource, path, bound)
        except ConnectError as error:
            return str(error)
        return ""


def _complaint(request: pb.RegisterRequest) -> str:
    """Return what is wrong with the request, or an empty string."""
    if request.version != VERSION:
        return (
            f"requested API version {go_quote(request.version)} is not supported by kubelet. "
            f'Supported version is ["{VERSION}"]'
        )
    if not is_extended_resource(request.resource_name):
        return f"the ResourceName {go_quote(request.resource_name)} is invalid"
    return ""
