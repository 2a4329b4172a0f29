"""Many objects, which a watch keeps current: thousands are not listed again at each step."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from deviceplugin.apiserver import ApiServer, ApiServerError, Watch

log = logging.getLogger(__name__)

PAGE: Final = 100
"""Objects in one page of a list; a Node object has some 10 kB."""
_SILENCE: Final = 150.0
"""Seconds without a byte after which a watch is resumed. Servers send bookmarks each minute."""
_LAG: Final = 1.0
"""Seconds in which a watch has to show what is there, or else it is listed."""

_T = TypeVar("_T")


class Watched(Generic[_T]):
    """What ``keep`` returns of the objects below ``path``, by name. Thread-safe.

    They are listed at first, and whenever the watch does not work: where nobody may watch, it is as
    if there were none. ``changed`` is called after each change, with whether anything is different.
    """

    def __init__(
        self,
        api: ApiServer,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        keep: Callable[[dict[str, Any]], _T],
        changed: Callable[[bool], object] = lambda _news: None,
    ) -> None:
        self._api = api
        self._path = path
        self._query = dict(query or {})
        self._changed = changed
        self._lock = threading.Condition()
        self._version = 0
        self._known: Mapping[str, _T] = {}
        """All, as they were at that version."""
        self._ahead: dict[str, tuple[int, _T | None]] = {}
        """Those that were read at a later one; None if they were gone."""
        self.items: Mapping[str, _T] = {}
        """Both together. It is replaced, and never changed."""
        self._error: ApiServerError | None = None
        self._lists = 0
        """How many lists of the watch were taken in."""
        self._watch = Watch(
            api,
            path,
            self._query,
            keep=keep,
            changed=self._shown,
            failed=self._failed,
            silence=_SILENCE,
            size=PAGE,
            is_careful=True,
        )
        self._thread = threading.Thread(target=self._watch.run, name=f"watch {path}", daemon=True)

    @property
    def is_live(self) -> bool:
        """Whether a watch keeps them current, at most ``_SILENCE`` seconds late."""
        return self._thread.is_alive() and self._error is None

    def refresh(self, *, trusting: bool = False) -> None:
        """Know all as they are now, or with ``trusting`` as the watch shows them, if it is live.

        A few are listed. Of many, the watch has to show what another watch does.

        Raises:
            ApiServerError: The request failed; what was known stays.
        """
        if self.is_live and (trusting or (len(self.items) > PAGE and self._is_current())):
            return
        newest = self._newest()
        found, version = self._watch.list()
        if _number(version) < newest:
            log.warning("API server has an older state than before", extra={"path": self._path})
            self._forget()
            self._watch.again()
        self._take(found, version)
        with self._lock:
            if self._thread.ident is None:
                self._watch.begin(dict(found), version)
                self._thread.start()

    def read(self, query: Mapping[str, str], known: Iterable[str]) -> None:
        """Read some again: those that ``query`` chooses, of which some are ``known``."""
        found, version = self._watch.list(query)
        with self._lock:
            if (at := _number(version)) > self._version:
                self._ahead |= {name: (at, found.get(name)) for name in {*known, *found}}
        self._merge()

    def stop(self) -> None:
        """End the watch."""
        self._watch.stop()
        if self._thread.is_alive():
            self._thread.join(10)

    def _is_current(self) -> bool:
        """Return whether the watch shows what a list and another watch do."""
        newest, before = self._newest(), self._version
        # The version of a list is that of all kinds together: it says nothing about these alone.
        listed = _number(next(self._api.pages(self._path, self._query, 1)).version)
        if not before or listed < newest:
            return False
        if listed == before:
            return True
        try:
            newer = self._api.changes(self._path, self._query, str(before))
            newest = max((_number(_version(one)) for one in newer), default=before)
        except (ApiServerError, LookupError, TypeError):
            return False
        with self._lock:
            return self._lock.wait_for(lambda: self._version >= newest, _LAG)

    def _newest(self) -> int:
        with self._lock:
            return max([self._version, *(at for at, _ in self._ahead.values())])

    def _forget(self) -> None:
        """Take in whatever comes next, also if it is older."""
        with self._lock:
            self._version, self._ahead = 0, {}

    def _shown(self, found: dict[str, _T]) -> None:
        if self._error:
            log.info("watch available again", extra={"path": self._path})
        self._error = None
        if self._watch.lists != self._lists:
            self._lists = self._watch.lists
            self._forget()
        self._take(dict(found), self._watch.version)

    def _failed(self, error: ApiServerError) -> None:
        if str(error) != str(self._error):
            said = {"path": self._path, "reason": str(error)}
            log.warning("watch unavailable", extra=said)
        self._error = error

    def _take(self, found: Mapping[str, _T], version: str) -> None:
        """Take in all as they were at ``version``, unless a later one is known."""
        with self._lock:
            if (at := _number(version)) < self._version:
                return
            self._known, self._version = found, at
            self._ahead = {name: one for name, one in self._ahead.items() if one[0] > at}
            self._lock.notify_all()
        self._merge()

    def _merge(self) -> None:
        with self._lock:
            items = dict(self._known)
            for name, (_, one) in self._ahead.items():
                if one is None:
                    items.pop(name, None)
                else:
                    items[name] = one
            news, self.items = items != self.items, items
        self._changed(news)


def _version(event: Mapping[str, Any]) -> str:
    return str(event["object"]["metadata"]["resourceVersion"])


def _number(version: str) -> int:
    """Return a version as a number; a later one is greater."""
    return int(version) if version.isdecimal() else 0
