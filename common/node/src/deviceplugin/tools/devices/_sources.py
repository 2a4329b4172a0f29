"""Asking the kubelet and the plugins, with a time limit."""

import json
from pathlib import Path
from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.tools._devices_page import Credentials, NoAnswerError, fetch, page_of
from deviceplugin.tools.devices._inventory import Inventory

_MAX_BYTES: Final = 64 * 1024 * 1024
_INIT: Final = (
    "devices of ordinary init containers: the kubelet does not list them, and such a device looks "
    "free"
)
_NO_PODS: Final = (
    "whether devices are in use: the kubelet lists no pods, which also happens when it has just "
    "started"
)
_UNHEALTHY: Final = (
    "unhealthy devices that no pod has, and why a device is not allocatable: the kubelet does not "
    "report that; ask the plugin with --plugin http://ADDRESS:9494"
)


def ask_kubelet(inventory: Inventory, socket: Path, timeout: float, *, with_plugins: bool) -> None:
    """Add the devices of the kubelet's PodResources API.

    ``with_plugins`` is whether plugins have been asked too.

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
        inventory.unknown.append(_UNHEALTHY)


def ask_plugin(inventory: Inventory, url: str, timeout: float, credentials: Credentials) -> None:
    """Add the devices of the plugin at ``url``, whose default path is ``/devices``.

    Raises:
        NoAnswerError: It does not answer, or its answer is wrong.
    """
    try:
        url = page_of(url)
        inventory.add_plugin(json.loads(fetch(url, timeout, _MAX_BYTES, credentials)))
    except (NoAnswerError, ValueError, RecursionError) as error:
        raise NoAnswerError(f"{url}: {error}") from error
