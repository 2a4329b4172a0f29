"""What pods hold, asked from the kubelet's PodResources socket where it is mounted."""

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import grpc

from deviceplugin import _rpc
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.podresources import podresources_pb2 as pb

_TIMEOUT: Final = 2.0
_MAX_BYTES: Final = 16 * 1024 * 1024
"""The kubelet sets no bound to its answers."""


def held_devices(socket: Path) -> Mapping[str, AbstractSet[str]] | None:
    """Return the ids that pods hold, by resource; None where there is no such socket.

    Devices of ordinary init containers are not among them: the kubelet does not list those.
    Each call also makes the kubelet collect the devices of finished pods, so call it seldom.

    Raises:
        KubeletUnavailableError: The socket is there but gives no answer now.
    """
    if not socket.exists():
        return None
    lister = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", _MAX_BYTES),
    ]
    with grpc.insecure_channel(f"unix:{socket}", options) as channel:
        try:
            answer = _rpc.calls(channel, lister)["List"](
                pb.ListPodResourcesRequest(), timeout=_TIMEOUT
            )
        except grpc.RpcError as error:
            raise KubeletUnavailableError(f"{socket}: {_rpc.status_text(error)}") from error
    held: defaultdict[str, set[str]] = defaultdict(set)
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                held[devices.resource_name].update(devices.device_ids)
    return held
