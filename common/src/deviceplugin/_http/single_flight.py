"""Answers that are made once for all who ask for them at the same time."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """What ``make`` returns, shared by those who ask while it is being made.

    Nobody gets an answer that began to be made before they asked: however many ask at once, it is
    made twice at most, and no answer is an old one. Nothing is kept while nobody asks. What
    ``make`` raises is raised for the one who had it called; the next one tries again.
    """

    def __init__(self, make: Callable[[str], _T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._asking = 0
        self._begun = 0
        self._made: tuple[int, str, _T] | None = None
        """The number of the making, what was asked for, and the answer."""

    def __call__(self, question: str = "") -> _T:
        """Return the answer to ``question``; only those with the same one share it."""
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
