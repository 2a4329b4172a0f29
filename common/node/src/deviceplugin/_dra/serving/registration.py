"""Registering a DRA driver by the kubelet's plugin watcher, which finds a socket and calls it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin._registration.watcher_service import refusal
from deviceplugin.proto import dra
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb

VERSIONS: Final = (dra.V1, dra.V1BETA1, dra.HEALTH)
"""The kubelet uses the first that it knows."""


class Registration:
    """The pluginregistration service of ``driver``. It answers from memory, within a second.

    Args:
        driver: The name of the driver.
        endpoint: The socket of the driver's services, as the kubelet sees it.
        notified: Called with the kubelet's verdict: an empty string, or why it refused.
    """

    def __init__(self, driver: str, endpoint: Path, notified: Callable[[str], None]) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._notified = notified

    def handlers(self) -> "list[grpc.GenericRpcHandler[Any, Any]]":
        """Return the handler of the service."""
        return [rpc.service(pb.DESCRIPTOR.services_by_name["Registration"], self)]

    def GetInfo(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:  # noqa: N802
        return pb.PluginInfo(
            type=dra.PLUGIN_TYPE,
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=VERSIONS,
        )

    def NotifyRegistrationStatus(  # noqa: N802
        self, request: pb.RegistrationStatus, _context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        self._notified(refusal(request))
        return pb.RegistrationStatusResponse()
