"""The kubelet's connection to one plugin socket."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._wire import (
    LARGEST_MESSAGE,
    ClientClosed,
    dialled_path,
    wait_until_ready,
)

_DEVICE_PLUGIN = pb.DESCRIPTOR.services_by_name["DevicePlugin"]


class DialError(Exception):
    """Nothing that speaks HTTP/2 answered at the plugin's socket."""


class PluginClient:
    """One connection to one plugin: dialled once, closed once, never reconnected."""

    def __init__(self, resource: str, path: str) -> None:
        self.resource = resource
        self.path = path
        self.offered = pb.DevicePluginOptions()
        """Its options, once it has been asked for them."""
        self.streaming = False
        """Whether ListAndWatch is open, or its end has not been handled yet."""
        self.greeting = True
        """Whether it is being dialled, or GetDevicePluginOptions is under way."""
        self.unwanted = False
        """Whether to close the connection as soon as it has the options."""
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._closed = False
        self._stream: grpc.Call | None = None
        self._calls: Mapping[str, Any] = {}

    def dial(self, timeout: float) -> None:
        """Connect, and wait up to ``timeout`` seconds for the server's HTTP/2 preface."""
        try:
            channel = self._open(dialled_path(self.path), timeout)
        except ValueError as error:
            raise DialError(str(error)) from None
        if not wait_until_ready(channel, timeout):
            self.close()
            raise DialError("context deadline exceeded")
        self._calls = rpc.calls(channel, _DEVICE_PLUGIN)

    def _open(self, path: str, timeout: float) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise DialError("context canceled")
            self._channel = rpc.connect(
                path,
                default_authority="localhost",
                max_receive_message_length=LARGEST_MESSAGE,
                # A Go client tries equally often, relative to its timeout.
                initial_reconnect_backoff_ms=int(timeout * 100),
            )
            return self._channel

    def close(self) -> None:
        """Close the connection: calls in flight, and a dial, end at once."""
        with self._lock:
            self._closed = True
            channel = self._channel
        if channel is not None:
            channel.close()

    def options(self, context: grpc.ServicerContext | None) -> pb.DevicePluginOptions:
        """Request the plugin's options while ``context`` is active, or without a time limit."""
        if context and not context.is_active():
            raise grpc.FutureCancelledError
        remaining = context.time_remaining() if context else float("inf")
        timeout = None if remaining > threading.TIMEOUT_MAX else remaining
        try:
            call = self._calls["GetDevicePluginOptions"].future(pb.Empty(), timeout=timeout)
        except ValueError:
            raise ClientClosed from None
        if context and not context.add_callback(call.cancel):  # it has ended meanwhile
            call.cancel()
        options: pb.DevicePluginOptions = call.result()
        return options

    def lists(self) -> Iterator[pb.ListAndWatchResponse]:
        """Yield the lists of ListAndWatch until the stream ends, for whatever reason."""
        with contextlib.suppress(grpc.RpcError, ValueError):  # ValueError: closed before the call
            stream = self._calls["ListAndWatch"](pb.Empty())
            self._stream = stream
            yield from stream

    @property
    def ended(self) -> bool:
        """Whether ListAndWatch has ended, even if that has not been handled yet."""
        return self._stream is not None and (self._closed or not self._stream.is_active())

    def call(self, method: str, request: Any, timeout: float | None) -> Any:
        """Call ``method``; without ``timeout`` there is no time limit."""
        try:
            return self._calls[method](request, timeout=timeout)
        except ValueError:
            raise ClientClosed from None
