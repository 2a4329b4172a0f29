"""The verdict of a kubelet that has found a plugin by its plugin watcher."""

from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb


def refusal(status: pb.RegistrationStatus) -> str:
    """Return why the kubelet refuses the plugin; an empty string if it has registered it."""
    return "" if status.plugin_registered else status.error or "no reason given"
