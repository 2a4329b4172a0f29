import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typing_extensions import override

from deviceplugin import AllocationError
from deviceplugin._platform import hooks as _hooks
from deviceplugin._platform.hooks import MAX_HANGING, HookFailedError, Hooks, HookTimeoutError, call
from deviceplugin._platform.threads import Threads
from patience import PATIENCE, eventually


def fail() -> NoReturn:
    raise KeyError("model")


def refuse() -> NoReturn:
    raise AllocationError("busy")


class PanicError(BaseException):
    """As native code raises it, which is no Exception."""


class MuteError(Exception):
    """One whose text cannot be had."""

    @override
    def __str__(self) -> str:
        raise PanicError("no text")


class MuteRefusalError(AllocationError):
    """The same, of a class that is passed on as it is."""

    @override
    def __str__(self) -> str:
        raise PanicError("no text")


NO_EXCEPTIONS = [
    SystemExit(0),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    pytest.fail.Exception("no"),
    PanicError("no"),
]


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What a hook hangs on; set at the end, so that none goes on."""
    event = threading.Event()
    yield event
    event.set()


def call_in_thread(hook: Callable[..., Any], *given: object) -> Any:
    return Hooks().call("allocate", hook, *given, timeout=PATIENCE)


@pytest.mark.parametrize("way", [call, call_in_thread])
def test_what_a_hook_gives_and_raises_on_purpose_comes_as_it_is_and_all_else_has_failed(
    way: Callable[..., object],
) -> None:
    assert (7, 3) == way(divmod, 52, 7)
    with pytest.raises(AllocationError, match="busy"):
        way(refuse)
    with pytest.raises(HookFailedError, match="KeyError: 'model'") as raised:
        way(fail)
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(HookFailedError, match="SystemExit: no library"):
        way(sys.exit, "no library")


@pytest.mark.parametrize("error", NO_EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_whatever_is_raised_in_a_thread_of_ours_is_a_failed_hook(error: BaseException) -> None:
    def fail() -> NoReturn:
        raise error

    with ThreadPoolExecutor(1) as pool:
        for way in (call, call_in_thread):
            called = pool.submit(way, fail)
            with pytest.raises(HookFailedError, match=type(error).__name__) as raised:
                called.result(PATIENCE)
            assert error is raised.value.__cause__


def test_an_interrupt_of_the_main_thread_is_that_of_its_user() -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(interrupted)


def module(path: Path, name: str, text: str) -> dict[str, Any]:
    """Return what is in the module ``name`` of ``text``, which is taken for the file ``path``."""
    members: dict[str, Any] = {"__name__": name}
    exec(compile(text, path, "exec"), members)
    return members


@pytest.mark.parametrize(
    ("name", "path", "place"),
    [
        ("__main__", "/opt/lamps/serial.py", "serial.py:2"),
        ("__main__", "/opt/lamps/lamp/__main__.py", "lamp/__main__.py:2"),
        ("lamp", "/usr/lib/python3/lamp.py", "lamp.py:2"),
        ("lamp", "/usr/lib/python3/lamp/__init__.py", "lamp/__init__.py:2"),
        ("lamp.bus.usb", "/usr/lib/python3/lamp/bus/usb.py", "lamp/bus/usb.py:2"),
        ("lamp", "<string>", "<string>:2"),
    ],
)
def test_an_error_is_told_with_the_line_where_it_came_from(
    name: str, path: str, place: str
) -> None:
    hook = module(Path(path), name, "def discover():\n    raise OSError('no bus')")["discover"]
    with pytest.raises(HookFailedError) as raised:
        call(hook)
    assert f"OSError: no bus ({place})" == str(raised.value)


def test_of_an_error_in_a_library_the_authors_own_last_line_is_told() -> None:
    library = module(
        Path("/usr/lib/python3/usb/core.py"), "usb.core", "def find(value):\n    return int(value)"
    )
    ours = module(Path("/opt/lamp/_bus.py"), "lamp._bus", "def look(find):\n    return find('x')")
    hooks = module(
        Path("/opt/lamp/__init__.py"),
        "lamp",
        "def discover(look, find):\n    yield look(find)",
    )
    with pytest.raises(HookFailedError, match=r"ValueError: .* \(lamp/_bus\.py:2\)$"):
        call(next, hooks["discover"](ours["look"], library["find"]))
    with pytest.raises(HookFailedError, match=r"\(tests/common/test_author\.py:"):
        # The lambda of this test is the first that is called, and stands for the plugin.
        call(lambda: list(hooks["discover"](ours["look"], library["find"])))


def test_an_error_of_nobodys_line_has_none() -> None:
    with pytest.raises(HookFailedError) as raised:
        call(int, "x")
    assert "ValueError: invalid literal for int() with base 10: 'x'" == str(raised.value)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (asyncio.CancelledError(), "CancelledError (tests/common/test_author.py:"),
        (MuteError(), "MuteError: its message cannot be read"),
        (MuteRefusalError("busy"), "MuteRefusalError: its message cannot be read"),
    ],
)
def test_an_error_without_a_text_is_told_by_its_type(error: BaseException, told: str) -> None:
    def fail() -> NoReturn:
        raise error

    with pytest.raises(HookFailedError) as raised:
        call(fail)
    assert str(raised.value).startswith(told)


def test_a_hook_that_turns_out_to_be_async_has_failed() -> None:
    async def start(_resource: str) -> None:
        pass

    expected = "TypeError: it is async, but hooks are called from threads: use def"
    with pytest.raises(HookFailedError) as raised:
        _ = Hooks().call("start", start, "x.io/dev", timeout=PATIENCE)
    assert expected == str(raised.value)


def test_a_hook_is_called_in_a_thread_that_does_not_keep_the_process() -> None:
    def who() -> tuple[str, bool]:
        thread = threading.current_thread()
        return thread.name, thread.daemon

    assert ("hook-allocate", True) == Hooks().call("allocate", who, timeout=PATIENCE)


def test_while_too_many_calls_hang_no_other_of_that_hook_is_made(released: threading.Event) -> None:
    hooks = Hooks()
    for _ in range(MAX_HANGING):
        with pytest.raises(HookTimeoutError, match=r"^prefer\(\) did not return within 0\.001 s$"):
            hooks.call("prefer", released.wait, PATIENCE, timeout=0.001)
    with pytest.raises(HookTimeoutError, match=r"prefer\(\) is not called: 4 earlier calls hang"):
        hooks.call("prefer", released.wait, timeout=60)
    assert hooks.call("allocate", lambda: True, timeout=PATIENCE)
    assert Hooks().call("prefer", lambda: True, timeout=PATIENCE), "that of another resource"
    released.set()
    eventually(lambda: not hooks._hanging["prefer"], "the late calls to end")
    for _ in range(10 * MAX_HANGING):
        assert hooks.call("prefer", released.wait, timeout=PATIENCE)


def test_a_thread_that_cannot_be_had_is_a_failed_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    hooks = Hooks()
    with monkeypatch.context() as patch:
        patch.setattr(_hooks, "_THREADS", Threads())
        patch.setattr(threading.Thread, "start", no_thread)
        for _ in range(2 * MAX_HANGING):
            with pytest.raises(HookFailedError, match="can't start new thread"):
                hooks.call("allocate", refuse, timeout=PATIENCE)
    assert hooks.call("allocate", lambda: True, timeout=PATIENCE)


def test_when_the_plugin_stops_no_hook_is_waited_for(released: threading.Event) -> None:
    hooks, begun = Hooks(), threading.Event()

    def hang() -> None:
        begun.set()
        released.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(hooks.call, "prefer", hang, timeout=60)
        assert begun.wait(PATIENCE)
        hooks.close()
        with pytest.raises(
            HookTimeoutError, match=r"prefer\(\) is given up: the plugin is stopping"
        ):
            called.result(PATIENCE)
    with pytest.raises(HookTimeoutError, match=r"prefer\(\) is not called: the plugin is stopping"):
        hooks.call("prefer", hang, timeout=60)
