"""Threads of a process: groups that end together, and threads only for what is awake."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.threads import Threads

log = logging.getLogger(__name__)

_THREADS: Final = Threads()
_AT_A_TIME: Final = 16
"""Sleepers that have threads at a time. Hundreds would mostly wait for each other."""
_OVERTIME: Final = 0.05
"""Seconds after which one more gets a thread in any case: those that have may hang."""
_NO_THREAD: Final = 5.0
"""Seconds to sleep on when the node has no thread left."""


class Sleeper:
    """A generator that yields for how many seconds it sleeps, unless woken. It can be joined."""

    def __init__(self, name: str, steps: Iterator[float], sleepers: "Sleepers") -> None:
        self.name = name
        self.steps = steps
        self.awake = False
        """Whether it runs in a thread. This and the other fields are for ``Sleepers``."""
        self.woken = True
        """Whether it was woken while it was awake."""
        self.until = 0.0
        """The time until which it sleeps."""
        self.over = threading.Event()
        self._sleepers = sleepers

    def wake(self) -> None:
        """End its sleep, or the next one. For any thread."""
        self._sleepers.wake(self)

    def is_alive(self) -> bool:
        return not self.over.is_set()

    def join(self, timeout: float) -> None:
        self.over.wait(timeout)


class Sleepers:
    """Runs sleepers. ``run`` is the thread that wakes them in time.

    ``guarded`` returns a function that calls another, by a name, and ends the process if it raises.
    """

    def __init__(
        self,
        guarded: Callable[[str, Callable[[], None]], Callable[[], None]],
        clock: Clock = MONOTONIC,
    ) -> None:
        self._guarded = guarded
        self._clock = clock
        self._lock = threading.Lock()
        self._all: set[Sleeper] = set()
        self._due: deque[Sleeper] = deque()
        """Those that are awake, but have no thread yet."""
        self._working = 0
        """How many have threads."""
        self._next_at = 0.0
        """The time from which one more gets a thread in any case."""
        self._changed = threading.Event()
        self._wakes_at = math.inf
        """The time until which the thread sleeps, if it does."""
        self._running = self._stopped = False

    def start(self, name: str, steps: Iterator[float]) -> Sleeper:
        """Run ``steps``, now and whenever its sleep is over."""
        sleeper = Sleeper(name, steps, self)
        with self._lock:
            self._all.add(sleeper)
        sleeper.wake()
        return sleeper

    def wake(self, sleeper: Sleeper) -> None:
        with self._lock:
            sleeper.woken = True
            if sleeper.awake or sleeper.over.is_set():
                return
            sleeper.awake = True
            if self._running:  # the caller need not wait until a thread has started
                self._due.append(sleeper)
                self._changed.set()
                return
        self._give_thread(sleeper)

    def run(self) -> None:
        """Wake sleepers in time, until stopped."""
        self._running = True
        while not self._stopped:
            if sleeper := self._next():
                self._give_thread(sleeper)
            else:
                self._clock.wait(self._changed, self._wakes_at)
        with self._lock:
            self._running = False
            due, self._due = self._due, deque()
        for sleeper in due:
            self._give_thread(sleeper)

    def stop(self) -> None:
        """Make ``run`` return. What is awake goes on, and what is woken gets a thread."""
        self._stopped = True
        self._changed.set()

    def _next(self) -> Sleeper | None:
        """Return one that is to get a thread now."""
        now = self._clock.now()
        with self._lock:
            self._changed.clear()
            for each in self._all if self._wakes_at <= now else ():
                if not each.awake and each.until <= now:
                    each.awake = each.woken = True
                    self._due.append(each)
            if self._due and (self._working < _AT_A_TIME or self._next_at <= now):
                self._next_at = now + _OVERTIME
                return self._due.popleft()
            asleep = [each.until for each in self._all if not each.awake]
            self._wakes_at = min([*asleep, self._next_at if self._due else math.inf])
        return None

    def _give_thread(self, sleeper: Sleeper) -> None:
        with self._lock:
            self._working += 1
        try:
            _THREADS.run(sleeper.name, self._guarded(sleeper.name, lambda: self._work(sleeper)))
        except RuntimeError:  # the node has no thread left
            with self._lock:
                self._sleep(sleeper, _NO_THREAD)

    def _work(self, sleeper: Sleeper) -> None:
        asleep = False
        try:
            while not asleep:
                sleeper.woken = False
                seconds = next(sleeper.steps, None)
                if seconds is None:
                    return
                with self._lock:
                    if asleep := not sleeper.woken:
                        self._sleep(sleeper, seconds)
        finally:
            if not asleep:
                with self._lock:
                    self._all.discard(sleeper)
                    self._sleep(sleeper, math.inf)
                sleeper.over.set()

    def _sleep(self, sleeper: Sleeper, seconds: float) -> None:
        """Record that ``sleeper`` gives up its thread. The caller holds the lock."""
        sleeper.awake = False
        sleeper.until = self._clock.now() + seconds
        self._working -= 1
        if self._due or sleeper.until < self._wakes_at:
            self._changed.set()


_NAMED: Final = 10
"""Late threads that are logged by name; the others are counted."""


class ThreadGroup:
    """Actors that end together: the first to end, for whatever reason, stops all others.

    There may also be threads that end at any time. If one of them fails, it stops all too.
    """

    def __init__(self) -> None:
        self._actors: list[tuple[str, Callable[[], None], Callable[[], None]]] = []
        self._over = threading.Event()
        self._error: Exception | None = None

    def add(self, name: str, run: Callable[[], None], stop: Callable[[], None]) -> None:
        """Add an actor: ``run`` gets its own thread, and returns after ``stop`` is called."""
        self._actors.append((name, run, stop))

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Return a thread for ``run``, which may end at any time but is an error if it raises."""
        return threading.Thread(target=self.guarded(name, run), name=name, daemon=True)

    def guarded(self, name: str, run: Callable[[], None]) -> Callable[[], None]:
        """Return a function that calls ``run``, and stops all if it raises."""
        return partial(self._act, name, run)

    def stop(self) -> None:
        self._over.set()

    def run(self, timeout: float) -> None:
        """Run all actors until one ends or ``stop`` is called; then stop all.

        It waits at most ``timeout`` seconds for them. It raises the error of the first actor that
        failed: RuntimeError if that is not an Exception, or if the actor ended before ``stop``.
        """
        threads = [
            self.thread(name, partial(self._run_until_stopped, name, run))
            for name, run, _ in self._actors
        ]
        for thread in threads:
            thread.start()
        self._over.wait()
        for _, _, stop in reversed(self._actors):
            stop()
        join(threads, timeout)
        if self._error is not None:
            raise self._error

    def _act(self, name: str, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:  # even SystemExit(0) is a failure here
            if self._error is None and isinstance(error, Exception):
                self._error = error
            elif self._error is None:  # SystemExit would look intended
                self._error = RuntimeError(f"{name} failed: {type(error).__name__}: {error}")
                self._error.__cause__ = error
            log.exception("fatal error, stopping")
            self._over.set()

    def _run_until_stopped(self, name: str, run: Callable[[], None]) -> None:
        run()
        if not self._over.is_set():
            raise RuntimeError(f"{name} ended by itself")


def join(threads: Iterable[threading.Thread | Sleeper], timeout: float) -> None:
    """Wait for ``threads``, at most ``timeout`` seconds for all of them together."""
    deadline = time.monotonic() + timeout
    late = []
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            late.append(thread.name)
    for name in late[:_NAMED]:
        log.warning("part not stopped in time", extra={"part": name})
    if more := len(late[_NAMED:]):
        log.warning("more parts not stopped in time", extra={"count": more})
