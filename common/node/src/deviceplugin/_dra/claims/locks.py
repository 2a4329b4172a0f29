"""A lock for each claim, so that calls for one wait for each other and those for others do not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from deviceplugin.errors import AllocationError


class ClaimLocks:
    """The locks of claims that are in use. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}
        """By uid, each with the number of threads that hold it or wait for it."""

    @contextmanager
    def hold(self, uid: str, seconds: float) -> Iterator[None]:
        """Hold the lock of the claim ``uid``.

        Raises:
            AllocationError: It was not free within ``seconds``.
        """
        with self._guard:
            lock, users = self._locks.get(uid, (threading.Lock(), 0))
            self._locks[uid] = lock, users + 1
        try:
            if not lock.acquire(timeout=max(0.0, seconds)):
                raise AllocationError("an earlier call for this claim is still under way")
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._guard:
                _, users = self._locks.pop(uid)
                if users > 1:
                    self._locks[uid] = lock, users - 1
