"""Several processes of one driver on a node, as while a pod is replaced: who does what.

Each has sockets of its own, and the kubelet calls whichever registered last and is connected. Only
one at a time changes claims. The one that leads publishes the slices.
"""

import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin._dra.naming import label
from deviceplugin._dra.serving.server import DriverSettings
from deviceplugin._platform.unix_sockets import answers
from deviceplugin.errors import AllocationError

_MOST: Final = 8
_AGAIN: Final = 0.05
"""Seconds between attempts to take the lock of another process."""
LEADER: Final = "lock"
"""Releases in which one process served a driver have this lock as long as they do."""
TURN: Final = "lock-claims"


class FileLock:
    """A lock on a file, which one process has at a time. The kernel releases that of a dead one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take it unless another process has it; return whether it is ours. May raise OSError."""
        if self._descriptor is None:
            with ExitStack() as undo:
                found = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                undo.callback(os.close, found)
                with suppress(BlockingIOError):
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    undo.pop_all()
                    self._descriptor = found
        return self._descriptor is not None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def part_lock(settings: DriverSettings, hardware: str) -> FileLock:
    """Return the lock for making parts of ``hardware``."""
    return FileLock(settings.directory / f"lock-parts-{label(hardware)}")


def _lock_of(settings: DriverSettings) -> FileLock:
    return FileLock(settings.directory / f"lock-{settings.instance}")


@contextmanager
def instance(settings: DriverSettings) -> Iterator[DriverSettings]:
    """Yield the settings of the first instance that no process is; OSError if there is none."""
    settings.directory.mkdir(exist_ok=True)
    for number in range(1, _MOST + 1):
        own = replace(settings, instance=number)
        lock = _lock_of(own)
        if lock.take() and not answers(own.service_socket):  # or it is an older release
            break
        lock.release()
    else:
        raise OSError(f"{settings.directory}: {_MOST} processes serve this driver already")
    try:
        yield own
    finally:
        lock.release()


def remove_stale_sockets(own: DriverSettings) -> None:
    """Remove the sockets of instances that were killed: the kubelet would go on dialling them."""
    for number in range(1, _MOST + 1):
        other = replace(own, instance=number)
        sockets = (other.registry_socket, other.service_socket)
        if number == own.instance or not any(path.exists() for path in sockets):
            continue
        lock = _lock_of(other)
        if lock.take():
            for path in sockets:
                path.unlink(missing_ok=True)
            lock.release()


class Turn:
    """The right to change claims. One process has it at a time, and its threads share it.

    ``refresh`` is called with it before the first of them, to learn what others have changed, if
    another process had it since or there are ``news``; and ``leave`` after the last one.
    """

    def __init__(
        self,
        path: Path,
        *,
        news: Callable[[], bool],
        refresh: Callable[[], None],
        leave: Callable[[], None],
    ) -> None:
        self._file = FileLock(path)
        self._path = path
        self._stamp = secrets.randbelow(1 << 60)
        """The file's time in ns while this process was the last: it needs no space on the disk."""
        self._news, self._refresh, self._leave = news, refresh, leave
        self._lock = threading.Lock()
        self._users = 0
        self._closed = threading.Event()

    def is_ours(self) -> bool:
        """Return whether it is known that no other process has had it since this one."""
        with suppress(OSError):
            return self._path.stat().st_mtime_ns == self._stamp
        return False

    def is_used(self) -> bool:
        """Return whether this process is changing claims."""
        return self._users > 0

    def close(self) -> None:
        """Stop waiting for other processes."""
        self._closed.set()

    @contextmanager
    def hold(self, left: Callable[[], float]) -> Iterator[None]:
        """Have it in the context; AllocationError if another process has it until ``left`` is 0."""
        while not self._enter():
            if left() <= 0 or self._closed.wait(_AGAIN):
                raise AllocationError("another process of this driver is preparing claims")
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._leave()
                    self._file.release()

    def _enter(self) -> bool:
        with self._lock:
            if not self._users:
                if not self._file.take():
                    return False
                try:
                    others = not self.is_ours()
                    if others or self._news():
                        self._refresh()
                    if others:  # before anything is changed, as this process may be killed
                        os.utime(self._path, ns=(self._stamp, self._stamp))
                except BaseException:
                    self._file.release()
                    raise
            self._users += 1
            return True
