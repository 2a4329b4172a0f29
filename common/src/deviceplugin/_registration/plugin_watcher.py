"""The other way to be registered: the kubelet's plugin watcher finds a socket and asks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin._platform.file_identity import Identity
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.kubelet_socket import Registrant
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb
from deviceplugin.proto.v1beta1 import VERSION

_AFTER_REFUSAL: Final = 30.0
"""Seconds that a kubelet has to try again by itself."""
_WATCHER: Final = (0, 0, 0)
"""Any kubelet: it looks again for our socket by itself when it has been restarted."""


class Registry:
    """The plugins_registry directory of a kubelet; takes the place of ``Kubelet``."""

    def __init__(self, directory: Path, metrics: Metrics) -> None:
        self.directory = directory
        self._metrics = metrics

    def token(self) -> str:
        """Return the part of the socket's name that distinguishes it: always the same.

        The watcher undoes a registration when its file goes, by the resource's name. Under the
        same file name it does so before it looks at the new file, and not after.
        """
        return "reg"

    def services(
        self, resource: str, refused: Callable[[str], None]
    ) -> "Sequence[grpc.GenericRpcHandler[Any, Any]]":
        """Return what has to be served beside the plugin's own service.

        ``refused`` is called with the reason where the kubelet refuses the resource.
        """
        service = pb.DESCRIPTOR.services_by_name["Registration"]
        return [rpc.service(service, _Servicer(resource, refused, self._metrics))]

    def identity(self) -> Identity:
        """Return the same for every kubelet."""
        return _WATCHER

    def register(self, registrant: Registrant, waiter: Waiter) -> Identity:
        """Wait until the kubelet has come and watches; None once ``waiter`` is over.

        None also some time after a refusal: from Kubernetes 1.36 on the kubelet tries again by
        itself, and before it only a new socket has it try.
        """
        waiter.until(lambda: registrant.watched or registrant.refused)
        watched = waiter.until(lambda: registrant.watched, _AFTER_REFUSAL)
        return _WATCHER if watched and not waiter.is_over() else None


class _Servicer:
    """The pluginregistration service of one resource; answers at once, from memory."""

    def __init__(self, resource: str, refused: Callable[[str], None], metrics: Metrics) -> None:
        self._resource = resource
        self._refused = refused
        self._metrics = metrics

    def GetInfo(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:  # noqa: N802
        # No endpoint: the plugin's service is on this very socket.
        return pb.PluginInfo(type="DevicePlugin", name=self._resource, supported_versions=[VERSION])

    def NotifyRegistrationStatus(  # noqa: N802
        self, request: pb.RegistrationStatus, _context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        if request.plugin_registered:
            self._metrics.registrations.labels(self._resource).inc()
        else:
            self._metrics.registration_failures.labels(self._resource, "refused").inc()
            self._refused(request.error or "no reason given")
        return pb.RegistrationStatusResponse()
