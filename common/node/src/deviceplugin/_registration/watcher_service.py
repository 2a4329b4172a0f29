"""The Registration service of a plugin, which the kubelet's plugin watcher calls."""

from collections.abc import Callable
from typing import Any

import grpc

from deviceplugin._platform import rpc
from deviceplugin._telemetry.metrics import REFUSED, Metrics
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb
from deviceplugin.proto.v1beta1 import VERSION


def service(
    resource: str, notified: Callable[[str], None], metrics: Metrics
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return the service for ``resource``. ``notified`` gets the verdict: why, or ""."""
    descriptor = pb.DESCRIPTOR.services_by_name["Registration"]
    return rpc.service(descriptor, _Servicer(resource, notified, metrics))


class _Servicer:
    """The pluginregistration service of one resource. It answers from memory."""

    def __init__(self, resource: str, notified: Callable[[str], None], metrics: Metrics) -> None:
        self._resource = resource
        self._notified = notified
        self._metrics = metrics

    async def GetInfo(self, _request: pb.InfoRequest, _context: object) -> pb.PluginInfo:  # noqa: N802
        # There is no endpoint, because the plugin's service is on this same socket.
        return pb.PluginInfo(type="DevicePlugin", name=self._resource, supported_versions=[VERSION])

    async def NotifyRegistrationStatus(  # noqa: N802
        self, request: pb.RegistrationStatus, _context: object
    ) -> pb.RegistrationStatusResponse:
        if verdict := refusal(request):
            self._metrics.registration_failures.labels(self._resource, REFUSED).inc()
        else:
            self._metrics.registrations.labels(self._resource).inc()
        self._notified(verdict)
        return pb.RegistrationStatusResponse()


def refusal(status: pb.RegistrationStatus) -> str:
    """Return why the kubelet refuses the plugin; an empty string if it has registered it."""
    return "" if status.plugin_registered else status.error or "no reason given"
