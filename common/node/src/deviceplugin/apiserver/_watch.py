"""Keeping a list of objects current: listing it once, then watching for changes."""

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError, ReadTimeoutError

from deviceplugin._platform.api_errors import ApiServerError, GoneError, UnavailableError, error_of
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver._client import MAX_ANSWER, PAGE, ApiServer, Object, Query

SHORTEST: Final = 300
LONGEST: Final = 600
"""Seconds after which the server ends a watch. The time is random, so that the watches of many
nodes, which begin together after a restart of the server, do not end together."""
_SILENCE: Final = 30.0
"""Seconds that a watch may last longer than that."""
_FIRST_WAIT: Final = 1.0
_LAST_WAIT: Final = 60.0
_BLOCK: Final = 65536
_NOT_AN_OBJECT: Final = (LookupError, TypeError, AttributeError)
"""Errors from objects whose ``metadata``, or what is in it, is missing or of another type."""


class _BrokenError(UnavailableError):
    """The connection of a watch that had begun has ended, as when the server is restarted."""


class Watch:
    """The objects below ``path``, kept current by ``run`` in a thread of the caller.

    A broken or silent watch is resumed at its position; it may be silent because the connection is
    dead, although servers send bookmarks each minute. If the server has forgotten the position, or
    says nothing at all after it, all objects are listed again: a server whose store was restored
    from a backup says nothing until it has come to that position. After errors it tries again for
    ever, with pauses of up to a minute.

    A connection that ends is an error only if it cannot be resumed: a server that is restarted ends
    all of them.

    Args:
        path: The path of a list, such as ``/api/v1/nodes``.
        query: Query parameters, such as ``fieldSelector``.
        keep: Returns what is kept of an object, and passed to ``changed`` in its place: all of
            thousands takes much memory.
        changed: Called in ``run``'s thread after the list, after each change of it, and when the
            watch is back after an error, with the objects by their ``namespace/name``. The objects
            must not be modified.
        failed: Called with each error, before the next attempt.
        silence: Seconds without a byte after which the watch is resumed.
        spread: Seconds within which it is resumed at first. Use it where thousands watch, such as
            all nodes of a cluster: a server that is restarted ends all watches at once.
        size: How many objects are listed at once.
        is_careful: Whether it asks, before it resumes a watch that broke, if the server has an
            older state than before. The silence shows that too, but late.
    """

    def __init__(  # noqa: PLR0913 - most have a default
        self,
        api: ApiServer,
        path: str,
        query: Query | None = None,
        *,
        keep: Callable[[Object], Any] = lambda item: item,
        changed: Callable[[dict[str, Any]], None],
        failed: Callable[[ApiServerError], None] = lambda _error: None,
        silence: float = LONGEST + _SILENCE,
        spread: float = 0.0,
        size: int = PAGE,
        is_careful: bool = False,
        clock: Clock = MONOTONIC,
    ) -> None:
        self._api = api
        self._path = path
        self._query = dict(query or {})
        self._keep = keep
        self._changed = changed
        self._failed = failed
        self._silence = silence
        self._size = size
        self._is_careful = is_careful
        self._clock = clock
        self._waiter = Waiter(clock)
        self._backoff = Backoff(_FIRST_WAIT, _LAST_WAIT, spread=spread)
        self._is_broken = False
        """Whether the connection has ended, and nothing was heard of the server since."""
        self._has_failed = False
        """Whether ``failed`` was called, and ``changed`` was not since."""
        self._is_lost = False
        """Whether the position is worth nothing."""
        self.lists = 0
        """How many times ``run`` has listed all objects."""
        self._objects: dict[str, Any] = {}
        self._version = ""
        self._lock = threading.Lock()
        self._answer: BaseHTTPResponse | None = None

    @property
    def version(self) -> str:
        """The version of the list that ``changed`` was last called with, or a later one."""
        return self._version

    def run(self) -> None:
        """Watch until stopped."""
        while not self._waiter.is_over():
            try:
                self._find_position()
                if not self._follow():  # a server may end every watch at once
                    self._pause()
            except GoneError:
                self._is_lost = True
                self._pause()
            except ApiServerError as error:
                self._tell(error)
                self._pause(error.after)

    def _find_position(self) -> None:
        if self._is_careful and self._is_broken and self._is_older():
            self._is_lost = True
        if self._is_lost or not self._version:
            self.begin(*self.list())
            self._is_lost = False
            self.lists += 1
            self._told()

    def _is_older(self) -> bool:
        known, newest = self._version, next(self._api.pages(self._path, self._query, 1)).version
        return known.isdecimal() and newest.isdecimal() and int(newest) < int(known)

    def _pause(self, at_least: float = 0.0) -> None:
        # Many clients were asked to come back after the same time.
        self._waiter.pause(at_least + self._backoff.next_wait())

    def _tell(self, error: ApiServerError) -> None:
        is_first = isinstance(error, _BrokenError) and (self._is_lost or not self._is_broken)
        self._is_broken = True
        if not is_first and not self._waiter.is_over():
            self._has_failed = True
            self._failed(error)

    def _well(self) -> None:
        """Record that the server answers as it should."""
        self._backoff.reset()
        self._is_broken = False

    def _told(self) -> None:
        self._has_failed = False
        self._changed(self._objects)

    def stop(self) -> None:
        """Make ``run`` return, even while it waits for the server."""
        self._waiter.end()
        self._cut()

    def again(self) -> None:
        """Have ``run`` list all objects again."""
        self._is_lost = True
        self._cut()

    def _is_over(self) -> bool:
        return self._waiter.is_over() or self._is_lost

    def _cut(self) -> None:
        with self._lock:
            if self._answer is not None:
                with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has just ended
                    self._answer.shutdown()

    def list(self, query: Query | None = None) -> tuple[dict[str, Any], str]:
        """Return what is kept of all objects, or of those that ``query`` chooses, and the version.

        ``run`` knows nothing of it. Raises ``ApiServerError``.
        """
        objects: dict[str, Any] = {}
        version = ""
        try:
            for page in self._api.pages(self._path, {**self._query, **(query or {})}, self._size):
                objects |= {_key(item): self._keep(item) for item in page.items}
                version = page.version
        except _NOT_AN_OBJECT as error:
            raise UnavailableError(f"{self._path}: the answer is not a list of objects") from error
        return objects, version

    def begin(self, objects: dict[str, Any], version: str) -> None:
        """Have ``run`` begin with what ``list`` has returned, and not list it again."""
        self._objects, self._version = objects, version

    def _follow(self) -> bool:
        """Apply changes until the server ends the watch; return whether it lasted as it should.

        Raises:
            GoneError: All objects must be listed again.
            ApiServerError: Something else failed.
        """
        seconds = random.randint(SHORTEST, LONGEST)  # noqa: S311
        more = {"watch": True, "allowWatchBookmarks": True, "timeoutSeconds": seconds}
        query = {**self._query, **more, "resourceVersion": self._version}
        began = self._clock.now()
        most = min(seconds + _SILENCE, self._silence)
        answer, is_silent = self._api.stream(self._path, query, most), True
        with self._lock:
            self._answer = answer
        try:
            if self._has_failed:
                self._told()
            for event in self._events(answer):
                is_silent = False
                if self._apply(event):
                    self._told()
        finally:
            with self._lock:
                self._answer = None
            answer.close()
            lasted = self._clock.now() - began
            if lasted > _LAST_WAIT:
                self._well()
        self._is_lost |= is_silent and lasted >= min(seconds, most)
        return lasted >= seconds

    def _events(self, answer: BaseHTTPResponse) -> Iterator[Any]:
        """Yield the JSON of each line of ``answer``, which should be an event."""
        rest = bytearray()
        try:
            while not self._is_over() and (block := answer.read1(_BLOCK)):
                rest += block
                if b"\n" in block:  # a long line is looked through once, not with each block
                    *lines, rest = rest.split(b"\n")
                    yield from (json.loads(line) for line in lines if line.strip())
                if len(rest) > MAX_ANSWER:
                    raise UnavailableError(
                        f"{self._path}: an event is longer than {MAX_ANSWER} bytes"
                    )
        except ReadTimeoutError:
            return  # it was silent
        except (HTTPError, OSError) as error:
            raise _BrokenError(f"{self._path}: the watch broke: {error}") from error
        except (ValueError, RecursionError) as error:
            raise UnavailableError(f"{self._path}: the watch broke: {error}") from error

    def _apply(self, event: Any) -> bool:
        """Apply ``event``, and return whether an object has changed."""
        item = event.get("object") if isinstance(event, dict) else None
        if not isinstance(item, dict):
            raise UnavailableError(f"{self._path}: the watch sent what is not an event")
        kind, code = event.get("type"), item.get("code")
        if kind == "ERROR":
            raise error_of(code if isinstance(code, int) else 0, item)
        try:
            self._version = item["metadata"]["resourceVersion"]
            key = "" if kind == "BOOKMARK" else _key(item)
            kept = self._keep(item) if key and kind != "DELETED" else None
        except _NOT_AN_OBJECT as error:
            raise UnavailableError(
                f"{self._path}: the watch sent {kind!r} without {error}"
            ) from error
        self._well()
        if not key:
            return False
        if kind == "DELETED":
            self._objects.pop(key, None)
        else:
            self._objects[key] = kept
        return True


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".removeprefix("/")
