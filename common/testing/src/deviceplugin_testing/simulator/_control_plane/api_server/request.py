"""What a request is about, and which objects it wants."""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from deviceplugin_testing.simulator._control_plane.kinds import RESOURCE, Kind, Object
from deviceplugin_testing.simulator._control_plane.refusals import (
    RefusedError,
    bad_request,
    invalid_options,
    unknown_address,
    unsupported,
)
from deviceplugin_testing.simulator._control_plane.store import Change, Store

_PATH: Final = re.compile(
    r"(?P<root>/api/v1|/apis/[\w.-]+/v\w+)(?:/namespaces/(?P<space>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[a-z]+))?"
)
_COMMON: Final = ("metadata.name", "metadata.namespace")
_NOT_OLDER: Final = "NotOlderThan"
_TRUE: Final = frozenset({"1", "true"})


@dataclass(frozen=True, slots=True)
class Request:
    kind: Kind
    namespace: str
    name: str
    part: str
    """The subresource, such as ``status``."""
    query: Mapping[str, list[str]]

    @classmethod
    def of(cls, address: str, kinds: Iterable[Kind]) -> "Request":
        """Return what is at ``address``; raise ``RefusedError``."""
        parts = urlsplit(address)
        query = parse_qs(parts.query, keep_blank_values=True)
        for option in ("timeoutSeconds", "limit"):
            given = query.get(option, ["0"])[0]
            if not given.isdecimal():
                raise bad_request(f'strconv.ParseInt: parsing "{given}": invalid syntax')
        found = _PATH.fullmatch(parts.path)
        for kind in kinds if found else ():
            if (kind.root, kind.plural) == (found["root"], found["plural"]):  # type: ignore[index]
                space, name, part = (found[one] or "" for one in ("space", "name", "part"))  # type: ignore[index]
                return cls(kind, space, name, part, query)
        raise unknown_address()

    def option(self, name: str) -> str:
        return self.query.get(name, [""])[0]

    def is_on(self, name: str) -> bool:
        return self.option(name) in _TRUE

    def is_dry_run(self) -> bool:
        """Return whether nothing is to be written; ``RefusedError`` as a real server's."""
        given = self.query.get("dryRun", [])
        if given not in ([], ["All"]):
            error = unsupported("dryRun", given, ["All"])
            raise invalid_options("CreateOptions", error)
        return bool(given)

    def number(self, name: str) -> int:
        """Return an option as a number, 0 if it is not there."""
        return int(self.option(name) or 0)

    def version(self) -> int:
        """Return the resource version that the request names, 0 if none."""
        given = self.option("resourceVersion")
        if given and not given.isdecimal():
            problem = f'strconv.ParseUint: parsing "{given}": invalid syntax'
            raise RefusedError(500, "", f'resourceVersion: Invalid value: "{given}": {problem}')
        return int(given or 0)

    def asks_for_beginning(self) -> bool:
        """Return whether a watch begins with what is there; ``RefusedError`` as a real server's.

        By default it does unless it names a version.
        """
        said, match = self.option("sendInitialEvents"), self.option("resourceVersionMatch")
        own, problem = "resourceVersionMatch", ""
        if said and match != _NOT_OLDER:
            problem = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        elif match and not said:
            problem = f"{own} is forbidden for watch unless sendInitialEvents is provided"
        if problem:
            message = f'ListOptions.meta.k8s.io "" is invalid: {own}: Forbidden: {problem}'
            raise RefusedError(422, "Invalid", message)
        if said:
            return said in _TRUE
        return self.version() == 0

    def filter(self) -> Callable[[Object], bool]:
        """Return whether an object is wanted, as a function; raise ``RefusedError``."""
        fields = [*_terms(self.option("fieldSelector"), "invalid selector")]
        for path, _, _ in fields:
            if path not in (*_COMMON, *self.kind.selectable):
                raise bad_request(_unknown_field(self.kind, path))
        labels = [*_terms(self.option("labelSelector"), "unable to parse requirement")]

        def wants(found: Object) -> bool:
            if self.namespace not in {"", found["metadata"].get("namespace", "")}:
                return False
            own: Mapping[str, str] = found["metadata"].get("labels", {})
            has_labels = all(
                (own.get(key) == value) == same if same is not None else key in own
                for key, same, value in labels
            )
            return has_labels and all(
                (_field(found, path) == value) == same for path, same, value in fields
            )

        return wants


def _terms(selector: str, problem: str) -> Iterable[tuple[str, bool | None, str]]:
    """Yield key, whether the value is wanted or None if any is, and value."""
    for term in filter(None, selector.split(",")):
        key, operator, value = re.split(r"(!=|==?|$)", term, maxsplit=1)
        is_field = problem == "invalid selector"
        if is_field and not operator:
            raise bad_request(f"{problem}: '{term}'; can't understand '{term}'")
        if " " in key.strip():
            found = key.split()[1]
            words = "expected: in, notin, =, ==, !=, gt, lt"
            raise bad_request(f"{problem}: found '{found}', {words}")
        yield key, None if not operator else operator != "!=", value


def _unknown_field(kind: Kind, path: str) -> str:
    if kind.group == RESOURCE and kind.selectable:
        return f"field label not supported for {kind.api_version}, Kind={kind.name}: {path}"
    if kind.selectable:
        return f"field label not supported: {path}"
    known = ", ".join(f'"{one}"' for one in _COMMON)
    return f'"{path}" is not a known field selector: only {known}'


def _field(found: Object, path: str) -> str:
    place: Any = found
    for name in path.split("."):
        place = place.get(name) if isinstance(place, dict) else None
    if isinstance(place, bool):
        return str(place).lower()
    return "" if place is None else str(place)


_SHORTEST: Final = 1800
"""Seconds that a watch lasts at least, if the client does not say."""
_FIRST_END: Final = {"k8s.io/initial-events-end": "true"}
Event = dict[str, Any]


class Watching:
    """One watch of ``store``, with a bookmark every ``bookmarks`` seconds for who asks for them.

    The store's monitor is poked when ``is_cut`` becomes true.
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
        self._version = request.version() or store.version
        self._found: list[Object] | None = None
        """What there is at the beginning, if it is asked for: before the client is answered."""
        if request.asks_for_beginning():
            with store.changed:
                self._found = store.list(request.kind, request.namespace)
                self._version = store.version

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
        if self._found is None:
            return
        for one in filter(self._wants, self._found):
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
