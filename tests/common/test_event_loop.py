"""What runs beside the event loop, and what it is told."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from deviceplugin._platform import event_loop
from deviceplugin._platform.hooks import HookFailedError, Hooks, HookTimeoutError
from loops import on_a_loop
from patience import PATIENCE


def refuse() -> NoReturn:
    raise ZeroDivisionError("no")


def test_there_is_one_loop_however_many_start_it() -> None:
    async def which() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda _: event_loop.call(which(), PATIENCE), range(8))
    assert 1 == len(set(found))


def test_what_a_coroutine_raises_is_raised_and_one_that_is_late_goes_on() -> None:
    go_on, done = asyncio.Event(), threading.Event()

    async def fail() -> None:
        refuse()

    async def late() -> None:
        await go_on.wait()
        done.set()

    async def end() -> None:
        go_on.set()

    with pytest.raises(ZeroDivisionError):
        event_loop.call(fail(), PATIENCE)
    with pytest.raises(TimeoutError):
        event_loop.call(late(), 0.01)
    event_loop.call(end(), PATIENCE)
    assert done.wait(PATIENCE)


@on_a_loop
async def test_a_hook_is_awaited_and_given_up() -> None:
    hooks, go_on = Hooks(), threading.Event()
    assert (7, 3) == await event_loop.call_hook(hooks, "allocate", divmod, 52, 7, limit=PATIENCE)
    with pytest.raises(HookFailedError, match="ZeroDivisionError: no"):
        await event_loop.call_hook(hooks, "allocate", refuse, limit=PATIENCE)
    with pytest.raises(HookTimeoutError, match=r"allocate\(\) did not return within 0\.01 s"):
        await event_loop.call_hook(hooks, "allocate", go_on.wait, PATIENCE, limit=0.01)
    go_on.set()
    with pytest.raises(ZeroDivisionError):
        await event_loop.in_thread("admission", refuse)


@on_a_loop
async def test_a_hook_is_given_up_when_the_plugin_stops() -> None:
    hooks, begun, go_on = Hooks(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(PATIENCE)

    call = asyncio.create_task(event_loop.call_hook(hooks, "allocate", hang, limit=PATIENCE))
    await begun.wait()
    hooks.close()
    with pytest.raises(HookTimeoutError, match="the plugin is stopping"):
        await call
    with pytest.raises(HookTimeoutError, match="the plugin is stopping"):
        await event_loop.call_hook(hooks, "allocate", hang, limit=PATIENCE)
    go_on.set()


@on_a_loop
async def test_neither_a_hook_nor_a_thread_ends_because_its_task_is_cancelled() -> None:
    go_on = threading.Event()
    for waiting in (
        event_loop.call_hook(Hooks(), "allocate", go_on.wait, PATIENCE, limit=PATIENCE),
        event_loop.in_thread("admission", lambda: go_on.wait(PATIENCE)),
    ):
        go_on.clear()
        task = asyncio.create_task(waiting)
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        assert await task


def test_a_hook_that_ends_after_its_loop_disturbs_nobody() -> None:
    hooks, go_on, over = Hooks(), threading.Event(), threading.Event()

    def hang() -> None:
        go_on.wait(PATIENCE)
        over.set()

    with pytest.raises(HookTimeoutError):
        asyncio.run(event_loop.call_hook(hooks, "allocate", hang, limit=0.01))
    go_on.set()
    assert over.wait(PATIENCE)
