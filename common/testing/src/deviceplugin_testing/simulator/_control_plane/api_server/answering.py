"""What the API server answers to a request, however that came."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from deviceplugin_testing.simulator._control_plane.api_server.access import (
    Access,
    ApiRequest,
    User,
    Wanted,
)
from deviceplugin_testing.simulator._control_plane.api_server.bodies import object_of, options_of
from deviceplugin_testing.simulator._control_plane.api_server.discovery import (
    REVIEWS,
    documents,
    review,
)
from deviceplugin_testing.simulator._control_plane.api_server.faults import Faults, OverloadedError
from deviceplugin_testing.simulator._control_plane.api_server.objects import Objects
from deviceplugin_testing.simulator._control_plane.api_server.patches import MERGE
from deviceplugin_testing.simulator._control_plane.api_server.request import Request
from deviceplugin_testing.simulator._control_plane.api_server.watching import Watching
from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError, unknown_address
from deviceplugin_testing.simulator._monitor import Monitor

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it was sent."""

    method: str
    address: str
    """Path and query."""
    header: Callable[[str], str | None]
    """Returns a header by its name."""
    body: bytes = b""


class Answer(NamedTuple):
    """A whole answer."""

    code: int
    body: Object
    headers: Mapping[str, str] = _NO_HEADERS


class Answering:
    """Answers requests about ``objects``, and logs them."""

    def __init__(self, objects: Objects, access: Access, faults: Faults) -> None:
        self.objects, self.access, self.faults = objects, access, faults
        self.bookmarks = 60.0
        self.log: list[ApiRequest] = []
        self.state = Monitor()
        """Guards the log."""
        self.cuts = 0
        """How often all watches were cut."""
        self._documents = documents(objects.store.kinds)

    def cut_watches(self) -> None:
        """Break all watches in the middle, as a proxy may."""
        with self.state:
            self.cuts += 1
        self.objects.store.changed.poke()

    def answer(self, asked: Asked) -> Answer | Watching:
        """Return the answer, or a watch that has begun."""
        try:
            if self.faults.latency:
                self.state.pause(self.faults.latency)
            user = self.access.user(asked.header("Authorization") or "")
            return self._read(user, asked) if asked.method == "GET" else self._write(user, asked)
        except OverloadedError as error:
            return Answer(error.code, error.status(), {"Retry-After": str(error.after)})
        except RefusedError as error:
            return Answer(error.code, error.status())

    def _read(self, user: User, asked: Asked) -> Answer | Watching:
        if document := self._documents.get(urlsplit(asked.address).path):
            return Answer(200, document)
        request = Request.of(asked.address, self.objects.store.kinds)
        is_watch = request.is_on("watch")
        verb = "watch" if is_watch else "get" if request.name else "list"
        with self._allowed(user, request, verb, asked):
            if is_watch:
                return self._watch(request)
            if not request.name:
                return Answer(200, self.objects.list(request))
            found = self.objects.store.get(request.kind, request.namespace, request.name)
            return Answer(200, found)

    def _watch(self, request: Request) -> Watching:
        cuts = self.cuts
        return Watching(
            self.objects.store,
            request,
            bookmarks=self.bookmarks,
            is_cut=lambda: self.cuts != cuts,
        )

    def _write(self, user: User, asked: Asked) -> Answer:
        kinds = self.objects.store.kinds
        if asked.address == REVIEWS:
            return Answer(201, review(self.access, kinds, user, json.loads(asked.body)))
        request = Request.of(asked.address, kinds)
        verb = _VERBS[asked.method]
        with self._allowed(user, request, verb, asked):
            if bool(request.name) == (verb == "create"):
                message = "the server does not allow this method on the requested resource"
                raise RefusedError(405, "MethodNotAllowed", message, {})
            return self._written(request, verb, asked)

    def _written(self, request: Request, verb: str, asked: Asked) -> Answer:
        objects, kind, media = self.objects, request.kind, asked.header("Content-Type")
        place = (kind, request.namespace, request.name)
        if verb == "delete":
            return Answer(200, objects.delete(*place, options_of(media, asked.body)))
        if verb == "patch":
            if media != MERGE:
                message = "415: Unsupported Media Type"
                raise RefusedError(415, "UnsupportedMediaType", message, {})
            return Answer(200, objects.merge(*place, json.loads(asked.body), request.part))
        made = object_of(kind, media, asked.body)
        if verb == "create":
            dry_run = request.is_dry_run()
            return Answer(201, objects.create(kind, request.namespace, made, dry_run=dry_run))
        return Answer(200, objects.replace(*place, made, request.part))

    @contextmanager
    def _allowed(self, user: User, request: Request, verb: str, asked: Asked) -> Iterator[None]:
        """Let the request be answered unless there is a reason not to, and log it."""
        kind = request.kind
        wanted = Wanted(verb, kind, request.namespace, request.name, request.part)
        code = 201 if verb == "create" else 200
        try:
            if request.part and not (request.part == "status" and kind.has_status):
                raise unknown_address()
            self.faults.check(wanted)
            self.access.check(user, wanted)
            yield
        except RefusedError as error:
            code = error.code
            raise
        finally:
            self._note(user, wanted, code, asked.header("User-Agent") or "")

    def _note(self, user: User, wanted: Wanted, code: int, client: str) -> None:
        kind = wanted.kind
        entry = ApiRequest(
            user.name,
            wanted.verb,
            kind.group,
            wanted.resource,
            wanted.namespace,
            wanted.name,
            code,
            client,
        )
        with self.state:
            self.log.append(entry)
