"""What a driver that may hang last returned."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_FRESH: Final = 5.0
_STALE: Final = 60.0
"""Seconds for which a result is reused, and after which the last one is dropped."""
_T = TypeVar("_T")


class Recent(Generic[_T]):
    """The last result of a call of the driver, in a thread called ``name``. Thread-safe.

    ``nothing`` stands for a result that there is not, or not any more. A call is waited for until
    ``patience`` seconds after it began, so that one that hangs delays only who began it.
    """

    def __init__(
        self, name: str, nothing: _T, clock: Callable[[], float], patience: float = 0.5
    ) -> None:
        self._name, self._nothing, self._clock = name, nothing, clock
        self._patience = patience
        self._lock = threading.Lock()
        self._result = nothing
        self._began = self._made_at = float("-inf")
        self.asking: threading.Thread | None = None
        """The call under way."""

    def begin(self, make: Callable[[], _T]) -> Callable[[], _T]:
        """Call ``make``, unless it has been called within the last seconds.

        Return what waits for it and has the last result. RuntimeError if the node has no thread.
        """
        with self._lock:
            now = self._clock()
            if self.asking is None and now - self._made_at >= _FRESH:
                # One at a time, even if it hangs. It does not keep the process alive.
                asking = threading.Thread(
                    target=self._ask, args=(make, now), name=self._name, daemon=True
                )
                asking.start()
                self.asking, self._began = asking, now
        return self._wait

    def _wait(self) -> _T:
        with self._lock:
            asking, left = self.asking, self._began + self._patience - self._clock()
        if asking is not None:
            asking.join(max(left, 0))
        with self._lock:
            return self._result if self._clock() - self._made_at < _STALE else self._nothing

    def _ask(self, make: Callable[[], _T], began: float) -> None:
        result = self._nothing
        try:
            result = make()
        finally:
            with self._lock:
                self._result, self._made_at, self.asking = result, began, None
