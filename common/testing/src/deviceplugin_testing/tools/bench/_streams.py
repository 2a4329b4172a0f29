"""Measuring whether a plugin still answers while many streams are open."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.tools.bench._errors import BenchError
from deviceplugin_testing.tools.bench._figures import Figure
from deviceplugin_testing.tools.bench._measure import allocations
from deviceplugin_testing.tools.bench._subject import Run

_FIRST_LIST: Final = 5.0
"""Seconds for all streams to bring a first list, before they count as refused."""
_ALLOCATE: Final = 10.0
"""Seconds for Allocate. A kubelet would wait for ever."""


def allocations_under(run: Run, count: int, streams: int) -> list[Figure]:
    """Allocate one device ``count`` times while ``streams`` more ListAndWatch are open.

    A plugin may refuse some of them. One of the figures is how many it accepted.
    """
    resource = min(run.kubelet.registered)
    with _open(f"unix:{run.kubelet.socket_of(resource)}", streams) as taken:
        try:
            figures = [
                Figure(f"{figure.name} under {streams} streams", figure.unit, figure.values)
                for figure in allocations(run, count, 1, timeout=_ALLOCATE)
            ]
        except grpc.RpcError as error:  # many plugins have no worker left for it
            raise BenchError(
                f"Allocate under {streams} streams: {rpc.status_text(error)}"
            ) from error
    return [Figure(f"of {streams} streams more, taken", "", [taken]), *figures]


@contextmanager
def _open(target: str, count: int) -> Iterator[int]:
    """Open ``count`` streams, each on its own connection; yield how many brought a list."""
    with ExitStack() as stack:
        firsts = [_first_list(stack, target, number) for number in range(count)]
        deadline = time.monotonic() + _FIRST_LIST
        yield sum(first.wait(max(0.0, deadline - time.monotonic())) for first in firsts)


def _first_list(stack: ExitStack, target: str, number: int) -> threading.Event:
    """Open a stream until ``stack`` is closed. Its first list sets the returned event."""
    options = [("grpc.use_local_subchannel_pool", 1), ("bench.stream", number)]
    channel = stack.enter_context(grpc.insecure_channel(target, options))
    watch = rpc.calls(channel, pb.DESCRIPTOR.services_by_name["DevicePlugin"])["ListAndWatch"]
    call = watch(pb.Empty())
    stack.callback(call.cancel)
    came = threading.Event()

    def read() -> None:
        with suppress(grpc.RpcError, StopIteration):  # refused, or cancelled at the end
            next(call)
            came.set()

    threading.Thread(target=read, name="stream", daemon=True).start()
    return came
