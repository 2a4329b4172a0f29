"""The event loop of the process, in a thread of its own. All servers of device plugins run in it.

A gRPC server that is not on an event loop has a thread that wakes five times a second, and another
thread for each open stream. On the loop, servers and streams have none.

Whatever runs on the loop must not wait for anything: the answers of all resources come from it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar

from deviceplugin._platform.hooks import HookFailedError, Hooks
from deviceplugin._platform.threads import Threads

_T = TypeVar("_T")

_THREADS: Final = Threads()
_STARTING: Final = threading.Lock()


def call(coroutine: Coroutine[Any, Any, _T], timeout: float) -> _T:
    """Run ``coroutine`` on the loop. After ``timeout`` seconds, a TimeoutError: it goes on."""
    with _STARTING:
        loop = _started()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout)


@cache
def _started() -> asyncio.AbstractEventLoop:
    """Return the loop, which runs until the process ends, because grpcio expects only one."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="event-loop", daemon=True).start()
    return loop


async def call_hook(
    hooks: Hooks, name: str, hook: Callable[..., _T], *args: Any, limit: float
) -> _T:
    """Return what ``hook`` returns within ``limit`` seconds, while the loop serves others.

    It raises what ``hooks.call`` raises. Cancelling the task does not end it: what the plugin does
    counts, even if the client is gone.
    """
    done = _Signal()
    result = hooks.begin(name, hook, *args, done=done.set_from_thread)
    timer = done.loop.call_later(limit, done.set)
    await done.wait()
    timer.cancel()
    return result(limit)


async def in_thread(name: str, function: Callable[[], _T]) -> _T:
    """Return what ``function`` returns, in a thread called ``name``. Cancelling does not end it.

    It must not wait without a limit. HookFailedError if the node has no thread left.
    """
    done, outcome = _Signal(), Future[_T]()

    def run() -> None:
        try:
            outcome.set_result(function())
        except Exception as error:  # the task raises it
            outcome.set_exception(error)
        finally:
            done.set_from_thread()

    try:
        _THREADS.run(name, run)
    except RuntimeError as error:
        raise HookFailedError(f"RuntimeError: {error}") from error
    await done.wait()
    return outcome.result()


class _Signal:
    """What a task waits for."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._is_set = False
        self._future: asyncio.Future[None] = self.loop.create_future()

    def set(self) -> None:
        self._is_set = True
        if not self._future.done():
            self._future.set_result(None)

    def set_from_thread(self) -> None:
        """End the wait, from any thread."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self.loop.call_soon_threadsafe(self.set)

    async def wait(self) -> None:
        """Wait, even if the task is cancelled. It takes fewer steps than ``asyncio.shield``."""
        while not self._is_set:
            try:
                await self._future
            except asyncio.CancelledError:
                self._future = self.loop.create_future()
