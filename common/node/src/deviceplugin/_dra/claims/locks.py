"""What only one thread, or process, does at a time: a claim, and making parts of hardware."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from deviceplugin._platform.clock import Clock
from deviceplugin._platform.hooks import HooksByResource
from deviceplugin.errors import AllocationError

_T = TypeVar("_T")
_AGAIN: Final = 0.05
"""Seconds between attempts to take the lock of another process."""


class ClaimLocks:
    """The locks of claims, each as long as it is in use. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks = WeakValueDictionary[str, threading.Lock]()

    @contextmanager
    def hold(self, uid: str, seconds: float) -> Iterator[None]:
        """Hold the lock of the claim; AllocationError if it is not free within ``seconds``."""
        with self._guard:
            lock = self._locks.setdefault(uid, threading.Lock())
        if not lock.acquire(timeout=max(0.0, seconds)):
            raise AllocationError("an earlier call for this claim is still under way")
        try:
            yield
        finally:
            lock.release()


class ProcessLock(Protocol):
    """A lock that one process has at a time."""

    def take(self) -> bool: ...

    def release(self) -> None: ...


class HardwareCalls:
    """Calls hooks, one at a time for each piece of hardware, also of other processes. Thread-safe.

    A hook that does not return in time keeps its hardware until it does, and meanwhile nobody waits
    for that. ``lock`` returns the lock that processes have in common for a piece of hardware.
    """

    def __init__(self, lock: Callable[[str], ProcessLock] | None, clock: Clock) -> None:
        self._lock, self._clock = lock, clock
        self._guard = threading.Lock()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._late: dict[str, _Call] = {}
        self._hooks = HooksByResource()
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop waiting for hooks and other processes: what waits fails at once."""
        self._closed.set()
        self._hooks.close()

    def call(
        self, hardware: str, name: str, hook: Callable[..., _T], *args: Any, seconds: float
    ) -> _T:
        """Return what ``hook`` returns; as `Hooks.call`, and AllocationError if another is on."""
        end = self._clock.now() + seconds
        with self._guard:
            turn = self._turns[hardware]
        late = self._late.get(hardware)
        # All workers of the server would wait for one driver that hangs.
        if not turn.acquire(timeout=0.0 if late and late.is_on else max(0.0, seconds)):
            raise AllocationError(f"an earlier call for parts of {hardware} is still under way")
        common = None if self._lock is None else self._lock(hardware)
        call = _Call(hook, turn, common)
        try:
            if common is not None:
                self._take(common, hardware, end)
            left = max(0.0, end - self._clock.now())
            found: _T = self._hooks[hardware].call(name, call, *args, timeout=left)
            return found
        finally:
            call.give_up()
            if call.is_on:
                self._late[hardware] = call

    def _take(self, common: ProcessLock, hardware: str, end: float) -> None:
        try:
            while not common.take():
                if self._clock.now() >= end or self._closed.wait(_AGAIN):
                    raise AllocationError(f"another process is busy with parts of {hardware}")
        except OSError as error:
            raise AllocationError(f"{error.filename}: {error.strerror}") from error


class _Call:
    """One call of a hook. Once it is given up, it does not begin any more.

    The locks are released when it has returned, or when it is given up before it began.
    """

    def __init__(
        self, hook: Callable[..., Any], turn: threading.Lock, common: ProcessLock | None
    ) -> None:
        self._hook, self._turn, self._common = hook, turn, common
        self._guard = threading.Lock()
        self._has_begun = self._is_given_up = False
        self.is_on = False

    def __call__(self, *args: Any) -> Any:
        with self._guard:
            if self._is_given_up:
                return None  # nobody waits for it
            self._has_begun = self.is_on = True
        try:
            return self._hook(*args)
        finally:
            self.is_on = False
            self._release()

    def give_up(self) -> None:
        with self._guard:
            self._is_given_up = True
            has_begun = self._has_begun
        if not has_begun:
            self._release()

    def _release(self) -> None:
        if self._common is not None:
            self._common.release()
        self._turn.release()
