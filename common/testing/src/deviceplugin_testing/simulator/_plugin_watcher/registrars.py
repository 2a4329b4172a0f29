"""What the kubelet does with plugins of each type that the plugin watcher finds."""

from typing import Protocol

from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb
from deviceplugin.proto.v1beta1 import VERSION
from deviceplugin_testing.simulator._control_plane.rules.names import is_extended_resource
from deviceplugin_testing.simulator._device_manager.registration import Connections
from deviceplugin_testing.simulator._wire import go_quote


class Registrar(Protocol):
    """Takes plugins of one type, as ``Drivers`` does."""

    def complaint(self, info: pb.PluginInfo, endpoint: str) -> str:
        """Return what is wrong with the answer to GetInfo, or an empty string."""

    def register(self, info: pb.PluginInfo, endpoint: str) -> None:
        """Take the plugin; raise ``ConnectError`` if that fails."""

    def deregister(self, name: str, endpoint: str) -> None:
        """Drop the plugin."""


class DevicePlugins:
    """Device plugins, each for one resource."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def complaint(self, info: pb.PluginInfo, endpoint: str) -> str:  # noqa: ARG002
        if VERSION not in info.supported_versions:
            versions = " ".join(info.supported_versions)
            return (
                f"manager version, {VERSION}, is not among plugin supported versions [{versions}]"
            )
        if not is_extended_resource(info.name):
            name = go_quote(info.name)
            return f"invalid name of device plugin socket: the ResourceName {name} is invalid"
        return ""

    def register(self, info: pb.PluginInfo, endpoint: str) -> None:
        self._connections.connect(info.name, endpoint, None)

    def deregister(self, name: str, endpoint: str) -> None:
        """Disconnect the plugin; before 1.37 by name, even if it has another socket."""
        self._connections.disconnect_socket(name, endpoint)
