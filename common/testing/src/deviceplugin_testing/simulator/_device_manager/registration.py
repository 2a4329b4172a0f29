"""The Registration service on kubelet.sock."""

import grpc

from deviceplugin.proto.v1beta1 import VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager.connections import Connections
from deviceplugin_testing.simulator._device_manager.resource_names import is_extended_resource
from deviceplugin_testing.simulator._errors import ConnectError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._wire.paths import go_quote, socket_path


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
