"""An event that a thread can wait for together with file descriptors."""

import os
import threading
import weakref

from typing_extensions import override


class PollableEvent(threading.Event):
    """An event with a file descriptor, which is readable once the event is set.

    The descriptor is opened by the first ``fileno``, and closed with the object. The event cannot
    be cleared.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opening = threading.Lock()
        self._descriptor: int | None = None

    def fileno(self) -> int:
        """Return the descriptor; OSError if none is free."""
        with self._opening:
            if self._descriptor is None:
                self._descriptor = os.eventfd(int(self.is_set()))
                weakref.finalize(self, os.close, self._descriptor)
            return self._descriptor

    @override
    def set(self) -> None:
        with self._opening:
            super().set()
            if self._descriptor is not None:
                os.eventfd_write(self._descriptor, 1)

    @override
    def clear(self) -> None:
        raise TypeError("it cannot be cleared")
