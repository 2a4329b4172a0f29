"""The Registration service on kubelet.sock."""

from collections.abc import Callable
from pathlib import Path

import grpc

from deviceplugin.simulator._connections import ConnectError, Connections
from deviceplugin.simulator._naming import go_quote, is_extended_resource, socket_path
from deviceplugin.v1beta1 import VERSION
from deviceplugin.v1beta1 import deviceplugin_pb2 as pb


class Registration:
    """Answers Register; every failure has the code UNKNOWN, as errors of a Go function have."""

    def __init__(
        self, directory: Path, connections: Connections, asked: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._connections = connections
        self._asked = asked

    def Register(  # noqa: N802 - the wire's name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Check the request, connect to the plugin and get its options.

        The options in the request are ignored.
        """
        resource = request.resource_name
        self._asked(resource)
        if request.version != VERSION:
            context.abort(
                grpc.StatusCode.UNKNOWN,
                f"requested API version {go_quote(request.version)} is not supported by kubelet. "
                f'Supported version is ["{VERSION}"]',
            )
        if not is_extended_resource(resource):
            context.abort(
                grpc.StatusCode.UNKNOWN, f"the ResourceName {go_quote(resource)} is invalid"
            )
        try:
            path = socket_path(self._directory, request.endpoint)
            self._connections.connect(resource, path, context)
        except ConnectError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return pb.Empty()
