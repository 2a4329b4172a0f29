"""What pods hold, asked from the kubelet's PodResources socket where it is mounted."""

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from deviceplugin import _rpc
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.podresources import podresources_pb2 as pb

_TIMEOUT: Final = 2.0
_MAX_BYTES: Final = 16 * 1024 * 1024
"""The kubelet sets no bound to its answers."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """The ids that pods hold, by resource; None where that cannot be known on this node."""

    by_resource: Mapping[str, AbstractSet[str]] | None = None
    complete: bool = True
    """Whether what is not in here is not held. A kubelet that has just started, and has not heard
    of its pods yet, lists none at all."""

    def of(self, resource: str) -> AbstractSet[str] | None:
        """Return the ids of ``resource`` that are held; None where that cannot be known."""
        if self.by_resource is None:
            return None
        return self.by_resource.get(resource, frozenset())


def holdings(socket: Path) -> Holdings:
    """Ask the kubelet at ``socket`` what pods hold.

    It cannot be known where the socket's directory does not exist, so has not been mounted.
    Devices of ordinary init containers are not told: the kubelet does not list those. Each call
    also makes the kubelet collect the devices of finished pods, so call it seldom.

    Raises:
        KubeletUnavailableError: There is no answer now.
    """
    if not socket.parent.is_dir():
        return Holdings()
    if not socket.exists():
        raise KubeletUnavailableError(f"{socket}: no such socket")
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
    return Holdings(held, complete=bool(answer.pod_resources))
