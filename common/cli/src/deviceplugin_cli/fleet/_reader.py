"""Reading long lists from an API server that may be busy, and showing how far a list is."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TextIO, TypeVar

from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver import ApiServer, GoneError, UnavailableError

_PATIENCE: Final = 1.0
"""Seconds after which somebody at a terminal wants to know."""
_INTERVAL: Final = 10.0
"""Seconds between lines elsewhere."""
_CLEAR: Final = "\r\x1b[K"
_PAGE: Final = 500
_RESTARTS: Final = 2
_ATTEMPTS: Final = 4
_FIRST_WAIT: Final = 1.0
_LAST_WAIT: Final = 8.0

_BUSY: Final = (429, 500, 502, 503, 504)
"""Statuses that may not last."""

_T = TypeVar("_T")
Object = dict[str, Any]


class Progress:
    """A line that is replaced on a terminal, and a line now and then elsewhere.

    Nothing is written of what is done within a second, or elsewhere within ten.
    """

    def __init__(self, out: TextIO, clock: Clock = MONOTONIC) -> None:
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._next = clock.now() + (_PATIENCE if self._is_terminal else _INTERVAL)
        self._shown = False

    def show(self, what: str, count: int, total: int | None) -> None:
        """Say that ``count`` have been read, of ``total`` if that is known."""
        if self._clock.now() < self._next:
            return
        line = f"reading {what}: {count}" + (f" of {total}" if total is not None else "")
        if self._is_terminal:
            self._out.write(f"{_CLEAR}{line}")
            self._shown = True
        else:
            self._out.write(f"deviceplugin fleet: {line}\n")
            self._next = self._clock.now() + _INTERVAL
        self._out.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._shown:
            self._out.write(_CLEAR)
            self._out.flush()
            self._shown = False


class Reader:
    """Lists of ``api``. A page at a time is in memory, and what ``reduce`` makes of the objects.

    A request that the server refuses for now, or that fails amid a list, is tried again, four times
    in all and with pauses. A list that the server has forgotten meanwhile is started again, twice.
    """

    def __init__(self, api: ApiServer, progress: Progress, waiter: Waiter | None = None) -> None:
        self._api = api
        self._progress = progress
        self._waiter = waiter or Waiter()

    def read(
        self,
        path: str,
        what: str,
        reduce: Callable[[Object], _T],
        query: Mapping[str, str] | None = None,
    ) -> list[_T]:
        """Return ``reduce`` of each object below ``path``; ``what`` they are, for the progress.

        Raises:
            ApiServerError: They cannot be listed.
        """
        for _ in range(_RESTARTS):
            try:
                return list(self._each(path, what, reduce, query or {}))
            except GoneError:
                continue
        return list(self._each(path, what, reduce, query or {}))

    def _each(
        self, path: str, what: str, reduce: Callable[[Object], _T], query: Mapping[str, str]
    ) -> Iterator[_T]:
        count, token = 0, ""
        while True:
            more: dict[str, str | int] = {"limit": _PAGE} | ({"continue": token} if token else {})
            answer = self._get(path, {**query, **more}, is_first=not token)
            try:
                metadata, items = answer["metadata"], answer.get("items") or []
                yield from map(reduce, items)
                token, left = metadata.get("continue", ""), metadata.get("remainingItemCount")
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                raise UnavailableError(f"{path}: the answer is not a list of {what}") from error
            count += len(items)
            self._progress.show(what, count, count + left if isinstance(left, int) else None)
            if not token:
                return

    def _get(self, path: str, query: Mapping[str, str | int], *, is_first: bool) -> Object:
        backoff = Backoff(_FIRST_WAIT, _LAST_WAIT)
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._api.get(path, query)
            except UnavailableError as error:
                broken = not error.status and not is_first  # at first: no network, no trust
                if not broken and error.status not in _BUSY:
                    raise
                self._waiter.pause(max(error.after, backoff.next_wait()))
        return self._api.get(path, query)
