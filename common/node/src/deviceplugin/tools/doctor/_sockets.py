"""Finding out who listens on a socket, with a time limit."""

import errno
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.empty_pb2 import Empty

from deviceplugin._platform import rpc
from deviceplugin.proto.podresources import podresources_pb2 as pb

_MAX_BYTES: Final = 16 * 1024 * 1024
"""The limit on the length of an answer; the kubelet itself has none."""
_NO_METHOD: Final = "/v1beta1.Registration/AreYouThere"
_CREDENTIALS: Final = struct.Struct("3i")
"""The process, user and group at the other end of a socket."""


class State(StrEnum):
    """The state of the path of a socket."""

    LISTENED_TO = "somebody listens on it"
    MISSING = "it does not exist"
    NO_SOCKET = "it is not a socket"
    DEAD = "nobody listens on it"
    DENIED = "this process may not connect to it"
    BUSY = "its listener does not accept connections"
    UNCLEAR = "connecting to it fails"


_BY_ERROR: Final = {
    errno.ECONNREFUSED: State.DEAD,
    errno.ENOENT: State.MISSING,
    errno.EACCES: State.DENIED,
    errno.EPERM: State.DENIED,
    errno.EAGAIN: State.BUSY,
}


def state_of(path: Path, timeout: float) -> State:
    """Connect to ``path``, disconnect at once, and return the result."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return State.NO_SOCKET
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(str(path))
    except TimeoutError:
        return State.BUSY
    except OSError as error:
        return _BY_ERROR.get(error.errno or 0, State.UNCLEAR)
    return State.LISTENED_TO


def listener_of(path: Path, timeout: float) -> int:
    """Return the process that listens on ``path``; 0 if that cannot be seen from here."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(str(path))
            found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return 0
    return int(_CREDENTIALS.unpack(found)[0])


class Answer(NamedTuple):
    """The answer of a gRPC server."""

    code: grpc.StatusCode
    details: str
    message: Any = None


def ask_kubelet(path: Path, timeout: float) -> Answer:
    """Call a method that no kubelet has. A kubelet answers that it is not implemented."""
    with rpc.connect(path, max_receive_message_length=_MAX_BYTES) as channel:
        call = channel.unary_unary(
            _NO_METHOD, request_serializer=bytes, response_deserializer=bytes
        )
        return _result(lambda: call(b"", timeout=timeout))


def ask_allocatable(path: Path, timeout: float) -> Answer:
    """Call GetAllocatableResources, which changes nothing, unlike List."""
    lister = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
    with rpc.connect(path, max_receive_message_length=_MAX_BYTES) as channel:
        call = rpc.calls(channel, lister)["GetAllocatableResources"]
        return _result(lambda: call(pb.AllocatableResourcesRequest(), timeout=timeout))


def ask_each(
    sockets: Sequence[Path], service: ServiceDescriptor, method: str, timeout: float
) -> Sequence[Answer]:
    """Call ``method`` without arguments on all ``sockets`` at once; messages are encoded."""
    with ExitStack() as stack:
        channels = [stack.enter_context(rpc.connect(path)) for path in sockets]
        begun = [
            rpc.calls(channel, service, encoded=True)[method].future(Empty(), timeout=timeout)
            for channel in channels
        ]
        return [_result(call.result) for call in begun]


def _result(ask: Callable[[], Any]) -> Answer:
    try:
        return Answer(grpc.StatusCode.OK, "", ask())
    except grpc.RpcError as error:
        call = cast("grpc.Call", error)
        return Answer(call.code(), call.details() or "")
