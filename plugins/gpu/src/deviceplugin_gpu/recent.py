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

    ``nothing`` stands for a result that there is not, or not any more. ``patience`` is for how many
    seconds ``get`` waits before it returns the last result.
    """

    def __init__(
        self, name: str, nothing: _T, clock: Callable[[], float], patience: float = 0.5
    ) -> None:
        self._name, self._nothing, self._clock = name, nothing, clock
        self._patience = patience
        self._lock = threading.Lock()
        self._result = nothing
        self._made_at = float("-inf")
        self.asking: threading.Thread | None = None
        """The call under way."""

    def get(self, make: Callable[[], _T]) -> _T:
        """Return what ``make`` returns, or has returned within the last seconds."""
        with self._lock:
            if self.asking is None and self._clock() - self._made_at >= _FRESH:
                # One at a time, even if it hangs. It does not keep the process alive.
                self.asking = threading.Thread(
                    target=self._ask, args=(make,), name=self._name, daemon=True
                )
                self.asking.start()
            asking = self.asking
        if asking is not None:
            asking.join(self._patience)
        with self._lock:
            return self._result if self._clock() - self._made_at < _STALE else self._nothing

    def _ask(self, make: Callable[[], _T]) -> None:
        began, result = self._clock(), self._nothing
        try:
            result = make()
        finally:
            with self._lock:
                self._result, self._made_at, self.asking = result, began, None
