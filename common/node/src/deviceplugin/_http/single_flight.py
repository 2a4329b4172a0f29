"""Single flight: computing an answer once for all threads that ask at the same time."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Shares the result of ``make`` between threads that ask at the same time.

    A caller waits for the next run and shares its result, so no answer is older than its question.
    Callers that ask at once cause two runs at most. No result is kept after the last caller has
    left. If ``make`` raises, only the caller that ran it gets the error; the next one tries again.
    """

    def __init__(self, make: Callable[[str], _T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._asking = 0
        self._begun = 0
        self._made: tuple[int, str, _T] | None = None
        """The number of the run, its question, and the answer."""

    def __call__(self, question: str = "") -> _T:
        """Return the answer to ``question``; only callers with the same question share it."""
        with self._lock:
            self._asking += 1
            begun = self._begun
        try:
            with self._making:
                made = self._made
                if made is not None and made[0] > begun and made[1] == question:
                    return made[2]
                return self._answer(question)
        finally:
            with self._lock:
                self._asking -= 1
                if not self._asking:
                    self._made = None

    def _answer(self, question: str) -> _T:
        with self._lock:
            self._begun += 1
            number = self._begun
        answer = self._make(question)
        self._made = number, question, answer
        return answer
