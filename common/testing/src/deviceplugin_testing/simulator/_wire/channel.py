"""Connections to plugins, as a Go client has them."""

import time
from collections.abc import Iterator
from typing import Any, Final, cast

import grpc

LARGEST_MESSAGE: Final = 4 * 1024 * 1024
"""Most bytes of a message that a Go client accepts by default."""

_CLOSE_CHECK: Final = 0.05
"""Seconds after which a dial notices that its channel was closed."""


def wait_until_ready(channel: grpc.Channel, timeout: float) -> bool:
    """Wait up to ``timeout`` seconds for the server's HTTP/2 preface; return whether it came.

    It also returns False soon after the channel was closed.
    """
    # The public way leaves a watch for 0.2 s, and closing the channel would wait for it.
    inner = cast("Any", channel)._channel  # noqa: SLF001
    deadline = time.monotonic() + timeout
    ready = grpc.ChannelConnectivity.READY.value[0]
    try:
        while (state := inner.check_connectivity_state(True)) != ready:  # noqa: FBT003
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            inner.watch_connectivity_state(state, time.time() + min(remaining, _CLOSE_CHECK))
    except ValueError:  # closed meanwhile
        return False
    return True


def connectivity(channel: grpc.Channel) -> Iterator[bool]:
    """Yield whether the channel is connected, at each change, until it is closed.

    A lost connection is dialled again, with growing gaps.
    """
    inner = cast("Any", channel)._channel  # noqa: SLF001
    ready = grpc.ChannelConnectivity.READY.value[0]
    connected = False
    try:
        while True:
            state = inner.check_connectivity_state(True)  # noqa: FBT003
            if connected is not (state == ready):
                connected = state == ready
                yield connected
            inner.watch_connectivity_state(state, time.time() + _CLOSE_CHECK)
    except ValueError:  # closed
        return
