import asyncio
import sys
import textwrap
import threading
from collections.abc import Iterator
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


def leave() -> NoReturn:
    sys.exit("no library")


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


class Hanging:
    """A hook that hangs until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def prefer(self) -> str:
        assert self.released.wait(PATIENCE)
        return "late"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hook = Hanging()
    yield hook
    hook.released.set()


def test_a_call_gives_what_the_hook_gives() -> None:
    assert (7, 3) == call(divmod, 52, 7)
    assert (7, 3) == Hooks().call("allocate", divmod, 52, 7, timeout=PATIENCE)


def test_what_a_hook_raises_on_purpose_comes_as_it_is() -> None:
    with pytest.raises(AllocationError, match="busy"):
        call(refuse)
    with pytest.raises(AllocationError, match="busy"):
        Hooks().call("allocate", refuse, timeout=PATIENCE)


def test_anything_else_that_a_hook_raises_is_a_failed_hook_with_its_cause() -> None:
    with pytest.raises(HookFailedError, match="KeyError: 'model'") as raised:
        call(fail)
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(HookFailedError, match="KeyError: 'model'") as raised:
        Hooks().call("allocate", fail, timeout=PATIENCE)
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_hook_that_leaves_the_process_has_failed() -> None:
    with pytest.raises(HookFailedError, match="SystemExit: no library"):
        call(leave)
    with pytest.raises(HookFailedError, match="SystemExit: no library"):
        Hooks().call("allocate", leave, timeout=PATIENCE)


@pytest.mark.parametrize("error", NO_EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_whatever_is_raised_in_a_thread_of_ours_is_a_failed_hook(error: BaseException) -> None:
    def fail() -> NoReturn:
        raise error

    with pytest.raises(HookFailedError, match=type(error).__name__) as raised:
        Hooks().call("allocate", fail, timeout=PATIENCE)
    assert error is raised.value.__cause__

    def look() -> None:
        with pytest.raises(HookFailedError, match=type(error).__name__) as raised:
            call(fail)
        looked.append(raised.value.__cause__)

    looked: list[BaseException | None] = []
    thread = threading.Thread(target=look)
    thread.start()
    thread.join(PATIENCE)
    assert [error] == looked


def test_an_interrupt_of_the_main_thread_is_that_of_its_user() -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(interrupted)


def test_an_error_without_a_text_is_told_by_its_type() -> None:
    def fail() -> NoReturn:
        raise asyncio.CancelledError

    with pytest.raises(HookFailedError) as raised:
        call(fail)
    assert str(raised.value).startswith("CancelledError (tests/common/test_author.py:")


def module(path: Path, name: str, text: str) -> dict[str, Any]:
    """Return what is in the module ``name`` of ``text``, which is taken for the file ``path``."""
    members: dict[str, Any] = {"__name__": name}
    exec(compile(textwrap.dedent(text), path, "exec"), members)
    return members


@pytest.mark.parametrize(
    ("name", "path", "place"),
    [
        ("__main__", "/opt/lamps/serial.py", "serial.py:3"),
        ("__main__", "/opt/lamps/lamp/__main__.py", "lamp/__main__.py:3"),
        ("lamp", "/usr/lib/python3/lamp.py", "lamp.py:3"),
        ("lamp", "/usr/lib/python3/lamp/__init__.py", "lamp/__init__.py:3"),
        ("lamp.bus.usb", "/usr/lib/python3/lamp/bus/usb.py", "lamp/bus/usb.py:3"),
        ("lamp", "<string>", "<string>:3"),
    ],
)
def test_an_error_is_told_with_the_line_where_it_came_from(
    name: str, path: str, place: str
) -> None:
    hook = module(
        Path(path),
        name,
        """
        def discover():
            raise OSError("no bus")
        """,
    )["discover"]
    with pytest.raises(HookFailedError) as raised:
        call(hook)
    assert f"OSError: no bus ({place})" == str(raised.value)


def test_of_an_error_in_a_library_the_authors_own_last_line_is_told() -> None:
    library = module(
        Path("/usr/lib/python3/usb/core.py"),
        "usb.core",
        """
        def find(value):
            return int(value)
        """,
    )
    ours = module(
        Path("/opt/lamp/_bus.py"),
        "lamp._bus",
        """
        def look(find):
            return find("x")
        """,
    )
    hooks = module(
        Path("/opt/lamp/__init__.py"),
        "lamp",
        """
        def discover(look, find):
            yield look(find)
        """,
    )
    with pytest.raises(HookFailedError) as raised:
        call(lambda: list(hooks["discover"](ours["look"], library["find"])))
    # The lambda of this test is the first that is called, and stands for the plugin.
    assert "(tests/common/test_author.py:" in str(raised.value)
    with pytest.raises(HookFailedError, match=r"ValueError: .* \(lamp/_bus\.py:3\)$"):
        call(next, hooks["discover"](ours["look"], library["find"]))


def test_an_error_of_nobodys_line_has_none() -> None:
    with pytest.raises(HookFailedError) as raised:
        call(int, "x")
    assert "ValueError: invalid literal for int() with base 10: 'x'" == str(raised.value)


@pytest.mark.parametrize("error", [MuteError(), MuteRefusalError("busy")])
def test_an_error_that_cannot_tell_its_text_is_told_by_its_type(error: Exception) -> None:
    def fail() -> NoReturn:
        raise error

    with pytest.raises(
        HookFailedError, match=f"{type(error).__name__}: its message cannot be read"
    ):
        call(fail)


def test_a_hook_that_turns_out_to_be_async_has_failed() -> None:
    async def start(_resource: str) -> None:
        pass

    expected = "TypeError: it is async, but hooks are called from threads: use def"
    with pytest.raises(HookFailedError) as raised:
        _ = Hooks().call("start", start, "x.io/dev", timeout=PATIENCE)
    assert expected == str(raised.value)


def test_a_hook_that_hangs_is_left_alone(hanging: Hanging) -> None:
    with pytest.raises(HookTimeoutError, match=r"prefer\(\) did not return within 0\.01 s"):
        Hooks().call("prefer", hanging.prefer, timeout=0.01)


def test_a_hook_is_called_in_a_thread_that_does_not_keep_the_process() -> None:
    def who() -> tuple[str, bool]:
        thread = threading.current_thread()
        return thread.name, thread.daemon

    assert ("hook-allocate", True) == Hooks().call("allocate", who, timeout=PATIENCE)


def test_while_too_many_calls_hang_further_ones_are_refused_at_once(hanging: Hanging) -> None:
    hooks = Hooks()
    for _ in range(MAX_HANGING):
        with pytest.raises(HookTimeoutError, match="did not return"):
            hooks.call("prefer", hanging.prefer, timeout=0.001)
    with pytest.raises(HookTimeoutError, match=r"prefer\(\) is not called: 4 earlier calls hang"):
        hooks.call("prefer", hanging.prefer, timeout=60)


def test_calls_that_end_late_make_room_for_others(hanging: Hanging) -> None:
    hooks = Hooks()
    for _ in range(MAX_HANGING):
        with pytest.raises(HookTimeoutError):
            hooks.call("prefer", hanging.prefer, timeout=0.001)
    hanging.released.set()
    eventually(lambda: not hooks._hanging["prefer"], "the late calls to end")
    assert ["late"] * MAX_HANGING == [
        hooks.call("prefer", hanging.prefer, timeout=PATIENCE) for _ in range(MAX_HANGING)
    ]


def test_many_quick_calls_never_run_out_of_room() -> None:
    hooks = Hooks()
    for _ in range(10 * MAX_HANGING):
        assert hooks.call("allocate", lambda: True, timeout=PATIENCE)


def test_the_places_of_other_resources_are_their_own(hanging: Hanging) -> None:
    hooks = Hooks()
    for _ in range(MAX_HANGING):
        with pytest.raises(HookTimeoutError):
            hooks.call("prefer", hanging.prefer, timeout=0.001)
    assert Hooks().call("allocate", lambda: True, timeout=PATIENCE)


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


def test_when_the_plugin_stops_no_hook_is_waited_for(hanging: Hanging) -> None:
    hooks = Hooks()
    begun = threading.Event()

    def hang() -> str:
        begun.set()
        return hanging.prefer()

    def stop() -> None:
        assert begun.wait(PATIENCE)
        hooks.close()

    closing = threading.Thread(target=stop)
    closing.start()
    with pytest.raises(HookTimeoutError, match=r"prefer\(\) is given up: the plugin is stopping"):
        hooks.call("prefer", hang, timeout=60)
    closing.join()
    with pytest.raises(HookTimeoutError, match=r"prefer\(\) is not called: the plugin is stopping"):
        hooks.call("prefer", hang, timeout=60)


def test_hooks_of_other_names_are_called_while_one_hangs(hanging: Hanging) -> None:
    hooks = Hooks()
    for _ in range(MAX_HANGING):
        with pytest.raises(HookTimeoutError):
            hooks.call("prefer", hanging.prefer, timeout=0.001)
    assert hooks.call("allocate", lambda: True, timeout=PATIENCE)
