"""Calling a plugin author's code: whatever it raises is contained, and it cannot hang an RPC."""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from deviceplugin.errors import DevicePluginError

_T = TypeVar("_T")

MAX_HANGING: Final = 4
"""Calls for one resource that may be hanging before further ones are refused at once."""


class HookFailedError(DevicePluginError):
    """A hook raised something that is no error of this framework; ``__cause__`` has it."""


class HookTimeoutError(DevicePluginError):
    """A hook did not return in time. It goes on in a thread of its own."""


def call(hook: Callable[..., _T], *args: Any) -> _T:
    """Return what ``hook`` returns.

    Raises:
        DevicePluginError: As the hook raised it.
        HookFailedError: It raised anything else.
    """
    try:
        return hook(*args)
    except DevicePluginError:
        raise
    except (Exception, SystemExit) as error:  # a plugin does not end the process
        raise HookFailedError(f"{type(error).__name__}: {error}") from error


class Hooks:
    """Calls of one plugin's hooks, for one resource, with a time limit."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MAX_HANGING)

    def call(self, hook: Callable[..., _T], *args: Any, timeout: float) -> _T:
        """Return what ``hook`` returns within ``timeout`` seconds.

        Raises:
            DevicePluginError: As for the function ``call``.
            HookTimeoutError: It took longer, or too many earlier calls still hang.
        """
        name = getattr(hook, "__name__", "hook")
        if not self._free.acquire(blocking=False):
            raise HookTimeoutError(f"{name}() is not called: {MAX_HANGING} earlier calls hang")
        outcome: list[Callable[[], _T]] = []
        done = threading.Event()

        def run() -> None:
            try:
                result = call(hook, *args)
                outcome.append(lambda: result)
            except DevicePluginError as error:
                outcome.append(_raiser(error))
            finally:
                self._free.release()
                done.set()

        # A daemon: a hook that hangs must not keep the process from ending.
        thread = threading.Thread(target=run, name=f"hook-{name}", daemon=True)
        try:
            call(thread.start)
        except HookFailedError:  # the node has no thread left
            self._free.release()
            raise
        if not done.wait(timeout):
            raise HookTimeoutError(f"{name}() did not return within {timeout:g} s")
        return outcome[0]()


def _raiser(error: DevicePluginError) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail
