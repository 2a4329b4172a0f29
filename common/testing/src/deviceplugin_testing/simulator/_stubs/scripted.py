"""A service whose answers can fail or wait, and which introduces itself to the plugin watcher."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as watcher_pb
from deviceplugin_testing.simulator._clock import PATIENCE
from deviceplugin_testing.simulator._monitor import Monitor

_T = TypeVar("_T")


class StubError(Exception):
    """A gRPC status to answer a call with."""

    def __init__(self, text: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class ScriptedService:
    """Records calls. ``failing`` makes a method fail, ``hold`` makes it wait."""

    def __init__(self, info: watcher_pb.PluginInfo) -> None:
        self.info = info
        """The answer to GetInfo."""
        self.failing: dict[str, StubError] = {}
        """The methods that fail, by name. A stream fails when it would send something."""
        self.calls: list[str] = []
        """The names of the methods called, in order."""
        self.statuses: list[watcher_pb.RegistrationStatus] = []
        """The requests of NotifyRegistrationStatus."""
        self.deadlines: dict[str, float] = {}
        """The time limit of the last call of each method, in seconds."""
        self._changed = Monitor()
        self._held: set[str] = set()
        self._version = self._ended = self._streams = 0

    def hold(self, method: str) -> None:
        """Make calls of ``method``, and all later ones, wait until they are released."""
        with self._changed:
            self._held.add(method)

    @property
    def holding(self) -> bool:
        """Whether any calls are being held."""
        with self._changed:
            return bool(self._held)

    def release(self, *methods: str) -> None:
        """Let held calls of ``methods`` continue; without arguments, those of all methods."""
        with self._changed:
            self._held -= set(methods or self._held)
            self._changed.poke()

    @property
    def streams(self) -> int:
        """Number of open streams."""
        with self._changed:
            return self._streams

    def end_streams(self) -> None:
        """Return from every open stream."""
        with self._changed:
            self._ended += 1
            self._changed.poke()

    def wait(self, condition: Callable[[], object], *, timeout: float = PATIENCE) -> None:
        """Wait until ``condition()`` is true. It is checked after every call and change."""
        if not self._changed.until(condition, timeout):
            raise TimeoutError(f"{self.info.name} waited {timeout:g} s; calls were {self.calls}")

    def GetInfo(  # noqa: N802 - the wire's name
        self, _request: watcher_pb.InfoRequest, context: grpc.ServicerContext
    ) -> watcher_pb.PluginInfo:
        """Answer with ``info``."""
        return self._answer("GetInfo", context, lambda: self.info)

    def NotifyRegistrationStatus(  # noqa: N802 - the wire's name
        self, request: watcher_pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> watcher_pb.RegistrationStatusResponse:
        """Record the status."""
        self.statuses.append(request)
        return self._answer(
            "NotifyRegistrationStatus", context, watcher_pb.RegistrationStatusResponse
        )

    def _answer(
        self, method: str, context: grpc.ServicerContext, behaviour: Callable[[], _T]
    ) -> _T:
        self._note(method, context)
        context.add_callback(self._changed.poke)
        self._changed.until(lambda: method not in self._held or not context.is_active())
        self._fail(method, context)
        return behaviour()

    def _send(self) -> None:
        """Have all streams send what is new; the caller holds the lock."""
        self._version += 1
        self._changed.poke()

    def _stream(
        self, method: str, context: grpc.ServicerContext, sent: int, message: Callable[[], _T]
    ) -> Iterator[_T]:
        """Yield ``message`` for each version after ``sent``, until the stream is over."""
        with self._changed:
            self._streams += 1
            ended = self._ended
            self._note(method, context)
        context.add_callback(self._changed.poke)

        def has_news() -> bool:
            return sent != self._version and method not in self._held

        try:
            while True:
                self._changed.until(
                    lambda: has_news() or ended != self._ended or not context.is_active()
                )
                with self._changed:
                    if not has_news():
                        return
                    sent = self._version
                self._fail(method, context)
                yield message()
        finally:
            with self._changed:
                self._streams -= 1
                self._changed.poke()

    def _fail(self, method: str, context: grpc.ServicerContext) -> None:
        if error := self.failing.get(method):
            context.abort(error.code, error.text)

    def _note(self, method: str, context: grpc.ServicerContext) -> None:
        with self._changed:
            self.calls.append(method)
            self.deadlines[method] = context.time_remaining()
            self._changed.poke()
