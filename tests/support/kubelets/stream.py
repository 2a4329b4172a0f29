"""A ListAndWatch stream of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["DevicePlugin"]


@contextmanager
def stream(socket: Path) -> Iterator[Any]:
    """Open one more stream, which ends with the context. It waits for who will serve there."""
    with rpc.connect(socket) as channel:
        yield rpc.calls(channel, _SERVICE)["ListAndWatch"](pb.Empty(), wait_for_ready=True)
