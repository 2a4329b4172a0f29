"""A watch: what happens, from a version on, to the objects that are wanted."""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.api_server.request import Request
from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from deviceplugin_testing.simulator._control_plane.store import Change, Store

_SHORTEST: Final = 1800
"""Seconds that a watch lasts at least, if the client does not say."""
_FIRST_END: Final = {"k8s.io/initial-events-end": "true"}
Event = dict[str, Any]


class Watching:
    """One watch of ``store``.

    Args:
        store: The objects.
        request: What is wanted, and how long.
        bookmarks: Seconds between two bookmarks, for clients that ask for them.
        is_cut: Returns whether the watch is cut. The store's monitor is poked when it becomes so.
    """

    def __init__(
        self, store: Store, request: Request, *, bookmarks: float, is_cut: Callable[[], bool]
    ) -> None:
        self._store = store
        self._request = request
        self._wants = request.filter()
        self.is_cut = is_cut
        self._bookmarks = bookmarks if request.is_on("allowWatchBookmarks") else 0.0
        self._clock = store.changed.clock
        self._starts = request.asks_for_beginning()
        self._version = request.version()

    def events(self) -> Iterator[Event]:
        """Yield what the client is sent, until the watch ends."""
        seconds = self._request.number("timeoutSeconds") or random.randint(_SHORTEST, 2 * _SHORTEST)  # noqa: S311
        end = self._clock.now() + seconds
        yield from self._beginning()
        next_bookmark = self._clock.now() + self._bookmarks
        while not self.is_cut() and (now := self._clock.now()) < end:
            wait = min(end, next_bookmark) - now if self._bookmarks else end - now
            self._store.changed.until(self._has_news, max(wait, 0.0))
            try:
                changes = self._store.since(self._version)
            except RefusedError as error:
                yield {"type": "ERROR", "object": error.status()}
                return
            for change in changes:
                self._version = change.version
                yield from self._event(change)
            if self._bookmarks and self._clock.now() >= next_bookmark:
                yield self._bookmark({})
                next_bookmark = self._clock.now() + self._bookmarks

    def _has_news(self) -> bool:
        return self._store.version > self._version or self.is_cut()

    def _beginning(self) -> Iterator[Event]:
        if not self._starts:
            return
        with self._store.changed:
            found = self._store.list(self._request.kind, self._request.namespace)
            self._version = self._store.version
        for one in filter(self._wants, found):
            yield {"type": "ADDED", "object": one}
        if self._request.option("sendInitialEvents") and self._bookmarks:
            yield self._bookmark(_FIRST_END)

    def _event(self, change: Change) -> Iterator[Event]:
        if change.kind != self._request.kind:
            return
        was = change.before is not None and self._wants(change.before)
        is_now = change.after is not None and self._wants(change.after)
        if is_now:
            yield {"type": "MODIFIED" if was else "ADDED", "object": change.last}
        elif was:
            yield {"type": "DELETED", "object": change.last}

    def _bookmark(self, annotations: Object) -> Event:
        kind = self._request.kind
        metadata: Object = {"resourceVersion": str(self._version)}
        metadata |= {"annotations": annotations} if annotations else {}
        found = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        return {"type": "BOOKMARK", "object": found}
