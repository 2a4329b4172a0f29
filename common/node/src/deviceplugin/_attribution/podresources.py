"""Asking the kubelet's PodResources socket, if it is mounted, what pods hold."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import grpc
from google.protobuf.message import DecodeError

from deviceplugin._platform import open_files, rpc
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.proto.podresources import podresources_pb2 as pb

TIMEOUT: Final = 2.0
"""Seconds for an answer."""
_MAX_BYTES: Final = 16 * 1024 * 1024
"""The limit on the length of an answer; the kubelet itself has none."""
_TOO_LONG: Final = "Received message larger than max"
_ANSWERS: Final[Mapping[str, Any]] = {
    "List": pb.ListPodResourcesResponse,
    "Get": pb.GetPodResourcesResponse,
    "GetAllocatableResources": pb.AllocatableResourcesResponse,
}
_NOT_FOUND: Final = "not found"
"""A part of the kubelet's message if a pod does not exist; the gRPC code is that of all errors."""

PodName = tuple[str, str]
"""Namespace and name. The kubelet does not report the UID of a pod."""


class Hold(NamedTuple):
    """One device that one container holds."""

    resource: str
    device: str
    namespace: str
    pod: str
    container: str
    """Empty, as is the pod, if a claim holds it and its pod is not listed."""
    claim: str = ""
    """The ResourceClaim through which it is held, in the pod's namespace; empty if the kubelet
    gave it out through the device plugin."""

    @property
    def owner(self) -> PodName:
        return self.namespace, self.pod


class ClaimedDevice(NamedTuple):
    """One device that one container has through a ResourceClaim, by its name in the slices."""

    driver: str
    pool: str
    name: str
    claim: str
    """Its namespace is the pod's."""
    namespace: str
    pod: str
    container: str


class NoGetError(KubeletUnavailableError):
    """This kubelet does not support Get: use List."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Who holds what. ``holds`` is None if that cannot be known on this node."""

    holds: frozenset[Hold] | None = None
    pods: frozenset[PodName] = frozenset()
    """All listed pods, with or without devices."""
    complete: bool = True
    """Whether a device that is not in here is free. A kubelet that has just started, and does not
    know its pods yet, lists none at all, or only static ones."""
    recorded: frozenset[tuple[str, str]] = frozenset()
    """Resources and ids of devices that are not free whatever ``complete`` says, because the
    kubelet has recorded them for pods that may still be there. Not all are listed above."""
    claimed: frozenset[ClaimedDevice] = frozenset()
    """What containers have through ResourceClaims, of all drivers. It is not in ``holds``."""
    answered: bool = True
    """Whether the kubelet said it now; otherwise its checkpoint did, and ``holds`` may be old."""
    _index: dict[str, dict[str, list[Hold]]] = field(
        default_factory=dict, init=False, compare=False
    )

    def __post_init__(self) -> None:
        for hold in sorted(self.holds or ()):
            self._index.setdefault(hold.resource, {}).setdefault(hold.device, []).append(hold)

    def holders(self, resource: str) -> Mapping[str, Sequence[Hold]]:
        """Return the holders of devices of ``resource``, by the device's id."""
        return self._index.get(resource, {})

    def of(self, resource: str) -> AbstractSet[str] | None:
        """Return the ids of held devices of ``resource``; None if that cannot be known."""
        return None if self.holds is None else self.holders(resource).keys()

    def recorded_of(self, resource: str) -> AbstractSet[str]:
        return {device for name, device in self.recorded if name == resource}


class PodResources:
    """The kubelet's PodResources service at ``socket``.

    ``count`` is called for each request, with the method and the gRPC code of the answer. All
    methods raise KubeletUnavailableError if the kubelet does not answer now.
    """

    def __init__(self, socket: Path, count: Callable[[str, str], None]) -> None:
        self.socket = socket
        self._count = count

    def list(self, timeout: float = TIMEOUT) -> Holdings:
        """Return what all active pods hold; unknown if the directory of the socket is not mounted.

        Devices of ordinary init containers are absent: the kubelet does not list them. Each call
        also makes the kubelet collect the devices of finished pods, so call it rarely.
        """
        if not self._exists(self.socket.parent):
            return Holdings()
        with self._connected() as call:
            answer = call("List", pb.ListPodResourcesRequest(), timeout)
        pods = answer.pod_resources
        return Holdings(
            frozenset(hold for pod in pods for hold in _holds(pod)),
            frozenset((pod.namespace, pod.name) for pod in pods),
            complete=bool(pods),
            claimed=frozenset(one for pod in pods for one in _claimed(pod)),
        )

    def allocatable(self) -> frozenset[tuple[str, str]]:
        """Return the devices that the kubelet would give out if free. It has no side effect."""
        with self._connected() as call:
            answer = call("GetAllocatableResources", pb.AllocatableResourcesRequest(), TIMEOUT)
        return frozenset(
            (devices.resource_name, device_id)
            for devices in answer.devices
            for device_id in devices.device_ids
        )

    def get(self, pods: Iterable[PodName], timeout: float = TIMEOUT) -> Holdings:
        """Return what ``pods`` hold within ``timeout`` seconds, or NoGetError. No side effect."""
        found: set[Hold] = set()
        known: set[PodName] = set()
        claimed: set[ClaimedDevice] = set()
        deadline = time.monotonic() + timeout
        with self._connected() as call:
            for namespace, name in sorted(pods):
                request = pb.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
                answer = call("Get", request, max(0.0, deadline - time.monotonic()))
                if answer is not None:
                    known.add((namespace, name))
                    found.update(_holds(answer.pod_resources))
                    claimed.update(_claimed(answer.pod_resources))
        return Holdings(frozenset(found), frozenset(known), claimed=frozenset(claimed))

    def check_same(self, kubelet: Identity) -> None:
        """Raise KubeletUnavailableError if the kubelet is not ``kubelet`` any more."""
        if file_identity(self.socket) != kubelet:
            raise KubeletUnavailableError(f"{self.socket}: the kubelet restarted meanwhile")

    def _exists(self, path: Path) -> bool:
        try:
            return path.exists()
        except OSError as error:  # such as a lack of permission
            raise KubeletUnavailableError(f"{self.socket}: {error.strerror}") from error

    @contextmanager
    def _connected(self) -> Iterator[Callable[[str, Any, float], Any]]:
        if not self._exists(self.socket):
            raise KubeletUnavailableError(f"{self.socket}: no such socket")
        if problem := open_files.shortage():
            raise KubeletUnavailableError(f"{self.socket}: cannot be called: {problem}")
        lister = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
        with rpc.connect(self.socket, max_receive_message_length=_MAX_BYTES) as channel:
            methods = rpc.calls(channel, lister, encoded=True)

            def call(method: str, request: Any, timeout: float) -> Any:
                try:
                    answer = _ANSWERS[method].FromString(methods[method](request, timeout=timeout))
                except grpc.RpcError as error:
                    if _says_not_found(method, error):
                        self._count(method, "NOT_FOUND")
                        return None
                    self._count(method, cast("grpc.Call", error).code().name)
                    raise _failure(method, error, self.socket) from error
                except DecodeError as error:
                    self._count(method, "INTERNAL")
                    raise KubeletUnavailableError(
                        f"{self.socket}: {method}: the answer cannot be read"
                    ) from error
                self._count(method, "OK")
                return answer

            yield call


def _says_not_found(method: str, error: grpc.RpcError) -> bool:
    call = cast("grpc.Call", error)
    unknown = call.code() is grpc.StatusCode.UNKNOWN
    return method == "Get" and unknown and _NOT_FOUND in str(call.details())


def _failure(method: str, error: grpc.RpcError, socket: Path) -> KubeletUnavailableError:
    # UNKNOWN is the code of a kubelet that has the method but disables it.
    disabled = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN}
    without = method == "Get" and cast("grpc.Call", error).code() in disabled
    kind = NoGetError if without else KubeletUnavailableError
    text = rpc.status_text(error)
    if _TOO_LONG in text:  # gRPC's text has the length, which varies
        text = f"{method}: the answer is longer than {_MAX_BYTES} bytes"
    return kind(f"{socket}: {text}")


def _holds(pod: pb.PodResources) -> Iterator[Hold]:
    """Yield what ``pod`` holds. A device is listed once for each of its NUMA nodes."""
    for container in pod.containers:
        for devices in container.devices:
            for device_id in devices.device_ids:
                yield Hold(
                    devices.resource_name, device_id, pod.namespace, pod.name, container.name
                )


def _claimed(pod: pb.PodResources) -> Iterator[ClaimedDevice]:
    for container in pod.containers:
        for claim in container.dynamic_resources:
            for one in claim.claim_resources:
                yield ClaimedDevice(
                    one.driver_name,
                    one.pool_name,
                    one.device_name,
                    claim.claim_name,
                    pod.namespace,
                    pod.name,
                    container.name,
                )
