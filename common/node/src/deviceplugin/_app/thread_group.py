"""Groups of threads that start and end together."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

log = logging.getLogger(__name__)

_NAMED: Final = 10
"""Late threads that are logged by name; the others are counted."""


class Group:
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
        """Make ``run`` return."""
        self._over.set()

    def run(self, timeout: float) -> None:
        """Run all actors until one ends or ``stop`` is called; then stop all.

        It waits at most ``timeout`` seconds for them to stop.

        Raises:
            Exception: The error of the first actor that failed.
            RuntimeError: That actor raised something else, or ended before ``stop``.
        """
        threads = [self.thread(name, self._lasting(name, run)) for name, run, _ in self._actors]
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
            self._error = self._error or _as_exception(name, error)
            log.exception("fatal error, stopping")
            self._over.set()

    def _lasting(self, name: str, run: Callable[[], None]) -> Callable[[], None]:
        """Return a function that calls ``run``, and raises RuntimeError if it ends too early."""

        def run_until_stopped() -> None:
            run()
            if not self._over.is_set():
                raise RuntimeError(f"{name} ended by itself")

        return run_until_stopped


def _as_exception(name: str, error: BaseException) -> Exception:
    """Return ``error``, wrapped if it is not an ``Exception``: SystemExit would look intended."""
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"{name} failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


class Joinable(Protocol):
    """A thread, or something like it."""

    name: str

    def join(self, timeout: float) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""

    def is_alive(self) -> bool:
        """Return whether it has not ended."""


def join(threads: Iterable[Joinable], timeout: float) -> None:
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
