"""One thread that notices changes in the file system, for the whole process.

inotify reports a change at once. The paths are also polled every few seconds: events can be lost,
and a node can run out of inotify instances.
"""

import ctypes
import errno
import itertools
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import inotify_simple

from deviceplugin._platform.file_identity import Signature, file_signature

log = logging.getLogger(__name__)

Callback = Callable[[str | None], None]
"""Called with the name of the entry that changed, or None if that is not known."""

# Or it would start ldconfig to find it.
inotify_simple._libc = ctypes.CDLL(None, use_errno=True)  # noqa: SLF001
_EVENTS: Final = inotify_simple.flags
_DIRECTORY: Final = (
    _EVENTS.CREATE
    | _EVENTS.DELETE
    | _EVENTS.MOVED_FROM
    | _EVENTS.MOVED_TO
    | _EVENTS.ATTRIB
    | _EVENTS.DELETE_SELF
    | _EVENTS.MOVE_SELF
)
_FILE: Final = _EVENTS.CLOSE_WRITE | _EVENTS.ATTRIB | _EVENTS.DELETE_SELF | _EVENTS.MOVE_SELF
_WITHOUT_INOTIFY: Final = 1.0
"""Seconds between checks while inotify is not available."""

_LONGEST: Final = 24 * 3600.0
"""Most seconds between checks; the kernel cannot count many more."""

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC})


@dataclass(eq=False)
class _Watch:
    """A path that is watched."""

    path: Path
    callbacks: list[Callback]
    """Several for one path share its watch."""
    signature: Signature = None
    descriptor: int | None = None
    awaited: str = ""
    """Of a directory above ``path``, the only entry that matters; empty if all do."""


class FileWatcher:
    """Watches paths. ``run`` is its thread, and looks at all of them every ``interval`` seconds."""

    def __init__(self, interval: float, *, inotify: bool = True) -> None:
        self._interval = interval
        self._lock = threading.RLock()
        self._watches: dict[Path, _Watch] = {}
        self._users: dict[int, dict[_Watch, None]] = {}
        """The watches that use each descriptor of inotify."""
        self._ticks: list[Callable[[], None]] = []
        self._wakeup: int | None = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._warned = False
        self._inotify: Any = self._open() if inotify else None
        self._short = self._inotify is None
        """Whether something is not watched, so that checks must be more frequent."""

    def _open(self) -> Any:
        try:
            return inotify_simple.INotify(nonblocking=True)
        except OSError as error:
            self._fall_back(error)
            return None

    def _fall_back(self, error: OSError) -> None:
        self._short = True
        if self._warned:
            return
        self._warned = True
        seccomp = "check the container's seccomp profile"
        advice = "raise fs.inotify limits" if error.errno in _EXHAUSTED else seccomp
        log.warning(
            "inotify unavailable, polling files every second",
            extra={"error": str(error), "advice": advice},
        )

    def every(self, tick: Callable[[], None]) -> None:
        with self._lock:
            self._ticks.append(tick)

    def forget(self, tick: Callable[[], None]) -> None:
        """Undo ``every``."""
        with self._lock:
            self._ticks.remove(tick)

    def watch(self, path: Path, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` after each change of ``path`` or, for a directory, of its entries.

        A path need not exist yet, and may be replaced. Callbacks run in the watcher's thread and
        must be quick. Returns a function that ends the watch.
        """
        with self._lock:
            watch = self._watches.get(path)
            if watch is None:
                watch = self._watches[path] = _Watch(path, [])
                self._arm(watch)
                watch.signature = file_signature(path)
            watch.callbacks.append(callback)
        return lambda: self._unwatch(watch, callback)

    def _unwatch(self, watch: _Watch, callback: Callback) -> None:
        with self._lock, suppress(ValueError):
            watch.callbacks.remove(callback)
            if not watch.callbacks:
                self._watches.pop(watch.path, None)
                before = watch.descriptor
                self._hold(watch, None)
                self._release([before])

    def _notify(self, watch: _Watch, name: str | None) -> None:
        with self._lock:
            callbacks = list(watch.callbacks)
        for callback in callbacks:
            callback(name)

    def stop(self) -> None:
        with self._lock:
            if not self._stopping and self._wakeup is not None:
                self._stopping = True
                os.eventfd_write(self._wakeup, 1)

    def run(self) -> None:
        """Watch until stopped, then close everything."""
        if self._wakeup is None:
            return
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        if self._inotify is not None:
            poll.register(self._inotify.fileno(), select.POLLIN)
        try:
            due = time.monotonic() + self._pause()
            while not self._stopping:
                left = due - time.monotonic()
                if left <= 0:  # also while one event follows another
                    self._check()
                    due = time.monotonic() + self._pause()
                elif poll.poll(left * 1000):
                    self._read()
        finally:
            self.close()

    def _pause(self) -> float:
        return min(self._interval, _WITHOUT_INOTIFY if self._short else _LONGEST)

    def close(self) -> None:
        """Release everything; ``run`` calls this at its end."""
        with self._lock:
            self._stopping = True
            self._watches.clear()
            if self._inotify is not None:
                self._inotify.close()
                self._inotify = None
            if self._wakeup is not None:
                os.close(self._wakeup)
                self._wakeup = None

    def _read(self) -> None:
        if self._inotify is None:
            return
        events = self._inotify.read(timeout=0)
        if any(event.mask & _EVENTS.Q_OVERFLOW for event in events):
            self._check(lost=True)
            return
        for watch, name in self._affected(events):
            self._notify(watch, name)

    def _affected(self, events: list[Any]) -> Iterator[tuple[_Watch, str | None]]:
        """Yield each watch with each entry that changed, once."""
        affected: dict[_Watch, dict[str, None]] = {}
        with self._lock:
            for event in events:
                for watch in self._users.get(event.wd, ()):
                    # Events of the directory itself have no name.
                    if not watch.awaited or event.name in {"", watch.awaited}:
                        affected.setdefault(watch, {})[event.name] = None
        for watch, names in affected.items():
            # A directory that is renamed or removed has an event without a name.
            old, new = self._rearm(watch, is_there="" not in names and not watch.awaited)
            # If it was and is absent, it may have come and gone in between.
            if new is None and (old is not None or any(names)):
                yield watch, None
            elif new is not None:
                moved = (old or ())[:2] != new[:2]
                yield from [(watch, None)] if moved else [(watch, name or None) for name in names]

    def _rearm(self, watch: _Watch, *, is_there: bool = False) -> tuple[Signature, Signature]:
        """Watch what is at the path now; return the signatures of before and now.

        It is watched already if it is the same and known to have been there all the time.
        """
        with self._lock:
            if self._watches.get(watch.path) is not watch:  # ended meanwhile
                return None, None
            old, new = watch.signature, file_signature(watch.path)
            # A new directory can have the old one's number.
            if not is_there or old is None or new is None or old[:2] != new[:2]:
                self._arm(watch)
                new = file_signature(watch.path)
            watch.signature = new
            return old, new

    def _check(self, *, lost: bool = False) -> None:
        """Report what changed since the last check, or every path if events were ``lost``."""
        with self._lock:
            watches, ticks = list(self._watches.values()), list(self._ticks)
            self._short = self._inotify is None  # set again by what still cannot be watched
        for watch in watches:
            old, new = self._rearm(watch)
            if lost or old != new:
                self._notify(watch, None)
        if self._warned and not self._short:
            self._warned = False
            log.info("inotify available again")
        for tick in ticks:
            tick()

    def _arm(self, watch: _Watch) -> None:
        """Watch the path itself, or the nearest existing directory above it."""
        spare = {watch.descriptor}
        last, armed = None, self._arm_nearest(watch)
        while armed not in (None, watch.path, last):
            # Try again: the next directory down may have been created before this watch.
            spare.add(watch.descriptor)
            last, armed = armed, self._arm_nearest(watch)
        self._release(spare - {watch.descriptor})

    def _arm_nearest(self, watch: _Watch) -> Path | None:
        awaited = ""
        paths = itertools.chain([watch.path], watch.path.parents)
        for path in paths if self._inotify is not None else ():
            try:
                is_directory = path.is_dir()
                mask = _DIRECTORY if is_directory else _FILE
                descriptor = self._inotify.add_watch(path, mask)
                if not is_directory and path.is_dir():  # made between the two
                    descriptor = self._inotify.add_watch(path, _DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                awaited = path.name
                continue
            except OSError as error:
                self._fall_back(error)
                return None
            self._hold(watch, descriptor)
            watch.awaited = awaited
            return path
        return None

    def _hold(self, watch: _Watch, descriptor: int | None) -> None:
        """Make ``descriptor`` the only one that serves ``watch``."""
        if watch.descriptor is not None:
            self._users[watch.descriptor].pop(watch, None)
        if descriptor is not None:
            self._users.setdefault(descriptor, {})[watch] = None
        watch.descriptor = descriptor

    def _release(self, descriptors: Iterable[int | None]) -> None:
        """Close those of ``descriptors`` that no watch uses any more."""
        for descriptor in descriptors:
            if descriptor is not None and not self._users.get(descriptor):
                self._users.pop(descriptor, None)
                if self._inotify is not None:
                    with suppress(OSError):  # removed by the kernel along with its file
                        self._inotify.rm_watch(descriptor)
