"""The open ListAndWatch streams of a resource: which is the kubelet's, and what each has sent."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from deviceplugin._kubelet.offer import Offer

MAX_STREAMS: Final = 64
"""Most ListAndWatch streams at a time; the kubelet needs one."""


class Stream:
    """One stream, which the coroutine that serves it opens."""

    def __init__(self) -> None:
        self.sent: bytes | None = None
        """The last list that it has sent."""
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Make it check what there is to send. For any thread."""
        self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self) -> None:
        await self._woken.wait()
        self._woken.clear()


class Streams:
    """The streams of ``offer``. Thread-safe but for ``serve``. ``report`` gets their number."""

    def __init__(self, offer: Offer, report: Callable[[int], None]) -> None:
        self._offer = offer
        self._report = report
        self._lock = threading.Lock()
        self._open: set[Stream] = set()
        self._kubelets: Stream | None = None
        self._awaiting = False
        self._closed = False
        self._end_watching = offer.watch(self._wake)

    def close(self) -> None:
        """End all streams. Each sends the latest list first."""
        self._closed = True
        self._end_watching()
        self._wake()

    def expect_kubelet(self) -> None:
        """Treat the next stream as the kubelet's."""
        with self._lock:
            self._awaiting, self._kubelets = True, None

    @property
    def awaiting_kubelet(self) -> bool:
        """Whether the kubelet has not opened its stream since ``expect_kubelet``."""
        return self._awaiting

    @property
    def watched(self) -> bool:
        """Whether the kubelet's stream is open."""
        return self._kubelets in self._open

    @property
    def up_to_date(self) -> bool:
        """Whether the kubelet's stream has sent the latest list."""
        kubelets = self._kubelets
        sent = kubelets.sent if kubelets and self.watched else None
        return sent is not None and sent == self._offer.latest()

    async def serve(self, write: Callable[[bytes], Awaitable[None]]) -> bool:
        """Serve a stream by ``write`` until it is over; return False if there are too many."""
        stream = self._add()
        if stream is None:
            return False
        try:
            await self._send_lists(stream, write)
        finally:
            self._discard(stream)
        return True

    async def _send_lists(self, stream: Stream, write: Callable[[bytes], Awaitable[None]]) -> None:
        while True:
            over, latest = self._closed, self._offer.latest()
            if latest is not None and latest != stream.sent:
                await write(latest)
                stream.sent = latest
            elif over:
                return
            else:
                await stream.wait()

    def _add(self) -> Stream | None:
        with self._lock:
            if len(self._open) >= MAX_STREAMS:
                return None
            stream = Stream()
            self._open.add(stream)
            if self._awaiting:
                self._awaiting, self._kubelets = False, stream
        self._report(len(self._open))
        return stream

    def _discard(self, stream: Stream) -> None:
        with self._lock:
            self._open.discard(stream)
        self._report(len(self._open))

    def _wake(self) -> None:
        with self._lock:
            streams = tuple(self._open)
        for stream in streams:
            stream.wake()
