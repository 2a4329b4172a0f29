"""Calling a plugin's code: whatever it raises is contained, and it cannot block an RPC."""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from traceback import walk_tb
from types import CoroutineType, FrameType
from typing import Any, Final, TypeVar

from deviceplugin._platform.threads import Threads
from deviceplugin.errors import DevicePluginError

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_OURS: Final = __name__.partition(".")[0]
MAX_HANGING: Final = 4
"""Calls of one hook that may hang, per resource, before further calls are refused at once."""
_THREADS: Final = Threads()
_MAX_REASON: Final = 400
"""Bytes. The reason goes into the status of a pod, and into an Event of at most 1,024 bytes."""


class HookFailedError(DevicePluginError):
    """A hook raised something other than this framework's errors; ``__cause__`` has it."""


class HookTimeoutError(DevicePluginError):
    """A hook did not return in time. It still runs, in its own thread."""


def call(hook: Callable[..., _T], *args: Any) -> _T:
    """Return what ``hook`` returns. HookFailedError if it raises anything but a DevicePluginError.

    Only a KeyboardInterrupt in the main thread is raised: it is the user's Ctrl-C, not the hook's.
    """
    try:
        return _finished(hook(*args))
    except BaseException as error:  # whatever a plugin raises, it must not end the process
        text = _text(error)
        if text is not None and isinstance(error, DevicePluginError):
            raise
        if isinstance(error, KeyboardInterrupt) and _in_main_thread():
            raise
        log.debug("hook failed", exc_info=True)
        raise HookFailedError(_described(error, text)) from error


def _finished(result: _T) -> _T:
    if isinstance(result, CoroutineType):
        result.close()  # or Python warns that it was never awaited
        raise TypeError("it is async, but hooks are called from threads: use def")
    return result


def _text(error: BaseException) -> str | None:
    """Return the message of ``error``, or None if its class fails to give one."""
    try:
        return str(error)
    except BaseException:  # an author's code, too
        return None


def _described(error: BaseException, text: str | None) -> str:
    name = type(error).__name__
    if text is None:
        text = "its message cannot be read"
    place = _place(error)
    return f"{name}{text and f': {text}'}{place and f' ({place})'}"


def _place(error: BaseException) -> str:
    """Return the file and line in the plugin's code where ``error`` arose; empty if there is none.

    The plugin's code is the package of the outermost frame that is not ours. The path of the file
    begins with its package.
    """
    frames = [entry for entry in walk_tb(error.__traceback__) if _package(entry[0]) != _OURS]
    if not frames:
        return ""
    package = _package(frames[0][0])
    frame, line = next(entry for entry in reversed(frames) if _package(entry[0]) == package)
    path = Path(frame.f_code.co_filename)
    above = _module(frame).count(".") + (path.stem in {"__init__", "__main__"})
    return f"{Path(*path.parts[-1 - above :])}:{line}"


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Hooks:
    """Calls hooks of one plugin, for one resource, with a time limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hanging: Counter[str] = Counter()
        self._waiting: set[Callable[[], None]] = set()
        self._closed = False

    def close(self) -> None:
        """Stop waiting for hooks: calls under way and later ones raise at once."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
        for done in waiting:
            done()

    def call(self, name: str, hook: Callable[..., _T], *args: Any, timeout: float) -> _T:
        """Return what ``hook`` returns within ``timeout`` seconds. Messages call it ``name``.

        HookTimeoutError if it took longer, if too many earlier calls of this name still hang, or if
        the plugin is stopping. Otherwise it raises as the function ``call``.
        """
        done = threading.Event()
        result = self.begin(name, hook, *args, done=done.set)
        done.wait(timeout)
        return result(timeout)

    def begin(
        self, name: str, hook: Callable[..., _T], *args: Any, done: Callable[[], None]
    ) -> Callable[[float], _T]:
        """Begin to call ``hook``. ``done`` is called, from any thread, once that is over.

        Return what has the result then, or after as many seconds as it is given. It raises as
        ``call``, as does this if too many earlier calls still hang, or if the plugin is stopping.
        """
        outcome = Future[_T]()
        self._enter(name, done)

        def run() -> None:
            try:
                outcome.set_result(call(hook, *args))
            except DevicePluginError as error:
                outcome.set_exception(error)
            finally:
                self._leave(name, done)

        def result(waited: float) -> _T:
            if outcome.done():
                return outcome.result()
            if self._closed:
                raise HookTimeoutError(f"{name}() is given up: the plugin is stopping")
            raise HookTimeoutError(f"{name}() did not return within {waited:g} s")

        try:
            _THREADS.run(f"hook-{name}", run)
        except RuntimeError as error:  # the node has no thread left
            self._leave(name, done)
            raise HookFailedError(f"RuntimeError: {error}") from error
        return result

    def _enter(self, name: str, done: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise HookTimeoutError(f"{name}() is not called: the plugin is stopping")
            if self._hanging[name] >= MAX_HANGING:
                raise HookTimeoutError(f"{name}() is not called: {MAX_HANGING} earlier calls hang")
            self._hanging[name] += 1
            self._waiting.add(done)

    def _leave(self, name: str, done: Callable[[], None]) -> None:
        with self._lock:
            self._hanging[name] -= 1
            self._waiting.discard(done)
        done()


class HooksByResource:
    """The `Hooks` of all resources. Thread-safe. Once it is closed, all of them are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: defaultdict[str, Hooks] = defaultdict(Hooks)
        self._closed = False

    def __getitem__(self, resource: str) -> Hooks:
        with self._lock:
            hooks = self._all[resource]
            if self._closed:
                hooks.close()
            return hooks

    def close(self) -> None:
        with self._lock:
            self._closed = True
            hooks = list(self._all.values())
        for each in hooks:
            each.close()


def reason_of(error: DevicePluginError) -> str:
    """Return the message of ``error`` for the kubelet: one short line of UTF-8, never empty."""
    raised = error.__cause__ if isinstance(error, HookFailedError) else error
    if _start_of(raised) in {"", "None"}:  # the message of an error number may be None
        return f"{type(raised).__name__} was raised without a message"
    encoded = _start_of(error).encode(errors="replace")
    if len(encoded) <= _MAX_REASON:
        return encoded.decode()
    return f"{encoded[: _MAX_REASON - len('...')].decode(errors='ignore')}..."


def _start_of(error: BaseException | None) -> str:
    """Return the start of the message of ``error`` on one line; empty if it has none to give."""
    try:
        return " ".join(call(str, error)[: 4 * _MAX_REASON].split())
    except DevicePluginError:
        return ""
