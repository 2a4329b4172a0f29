"""Asking the kubelet and the plugins, in a bounded time."""

import json
from pathlib import Path
from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.tools._devices_page import NoAnswerError, fetch, page_of
from deviceplugin.tools.devices._inventory import Inventory

_MAX_BYTES: Final = 64 * 1024 * 1024
_INIT: Final = (
    "devices of ordinary init containers: the kubelet does not list them, and such a device looks "
    "free"
)
_NO_PODS: Final = (
    "whether devices are in use: the kubelet lists no pod at all, as it does when it has just "
    "started"
)
_ILL: Final = (
    "unhealthy devices that no pod has, and why a device is not allocatable: the kubelet does not "
    "tell; ask the plugin with --plugin http://ADDRESS:9494"
)


def ask_kubelet(inventory: Inventory, socket: Path, timeout: float, *, with_plugins: bool) -> None:
    """Add what the kubelet's PodResources API lists; ``with_plugins``: plugins have been asked.

    Raises:
        NoAnswerError: It does not answer.
    """
    if not socket.exists():
        raise NoAnswerError(f"{socket}: does not exist: is it mounted, and does the kubelet run?")
    lister = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
    with rpc.connect(socket, max_receive_message_length=_MAX_BYTES) as channel:
        calls = rpc.calls(channel, lister)
        try:
            pods = calls["List"](pb.ListPodResourcesRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise NoAnswerError(f"{socket}: {rpc.status_text(error)}") from error
        inventory.add_pods(pods)
        inventory.unknown += [_INIT] if pods.pod_resources else [_NO_PODS, _INIT]
        try:
            request = pb.AllocatableResourcesRequest()
            inventory.add_allocatable(calls["GetAllocatableResources"](request, timeout=timeout))
        except grpc.RpcError as error:
            inventory.unknown.append(f"free devices: {socket}: {rpc.status_text(error)}")
            return
    inventory.close()
    if not with_plugins:
        inventory.unknown.append(_ILL)


def ask_plugin(inventory: Inventory, url: str, timeout: float) -> None:
    """Add what the plugin at ``url`` lists; ``/devices`` is understood.

    Raises:
        NoAnswerError: It does not answer, or wrongly.
    """
    try:
        url = page_of(url)
        inventory.add_plugin(json.loads(fetch(url, timeout, _MAX_BYTES)))
    except (NoAnswerError, ValueError, RecursionError) as error:
        raise NoAnswerError(f"{url}: {error}") from error
