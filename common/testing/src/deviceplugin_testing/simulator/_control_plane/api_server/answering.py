"""What the API server answers to a request, however that came."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from deviceplugin_testing.simulator._control_plane.api_server.access import (
    RETRY,
    Access,
    ApiRequest,
    Faults,
    User,
    Wanted,
)
from deviceplugin_testing.simulator._control_plane.api_server.bodies import object_of, options_of
from deviceplugin_testing.simulator._control_plane.api_server.objects import Objects
from deviceplugin_testing.simulator._control_plane.api_server.request import Request, Watching
from deviceplugin_testing.simulator._control_plane.kinds import EVICTIONS, POD, Kind, Object
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError, unknown_address
from deviceplugin_testing.simulator._monitor import Monitor
from deviceplugin_testing.simulator._releases import COMPARED

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RESOURCE_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


def documents(kinds: Iterable[Kind]) -> dict[str, Object]:
    """Return what is at the addresses of groups and versions, by address."""
    minor = COMPARED.partition(".")[2]
    found: dict[str, Object] = {
        "/version": {"major": "1", "minor": minor, "gitVersion": f"v{COMPARED}.2"},
        "/readyz": {},
        "/livez": {},
    }
    for kind in kinds:
        usual: Object = {"kind": "APIResourceList", "apiVersion": "v1"}
        place = found.setdefault(
            kind.root, {**usual, "groupVersion": kind.api_version, "resources": []}
        )
        parts = ("", "/status") if kind.has_status else ("",)
        place["resources"] += [_resource(kind, part) for part in parts]
    return found


def _resource(kind: Kind, part: str) -> Object:
    return {
        "name": f"{kind.plural}{part}",
        "singularName": "" if part else kind.name.lower(),
        "kind": kind.name,
        "namespaced": kind.namespaced,
        "verbs": ["get", "patch", "update"] if part else [*_RESOURCE_VERBS],
    }


def review(access: Access, kinds: Iterable[Kind], user: User, asked: Object) -> Object:
    """Return whether ``user`` may do what a SelfSubjectAccessReview asks."""
    wanted = asked.get("spec", {}).get("resourceAttributes", {})

    def said(name: str) -> str:
        return str(wanted.get(name, ""))

    allowed = any(
        access.allows(
            user,
            Wanted(said("verb"), kind, said("namespace"), said("name"), said("subresource")),
        )
        for kind in kinds
        if (kind.group, kind.plural) == (said("group"), said("resource"))
    )
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": asked.get("spec", {}),
        "status": {"allowed": allowed},
    }


def _wrong_method() -> RefusedError:
    message = "the server does not allow this method on the requested resource"
    return RefusedError(405, "MethodNotAllowed", message, {})


EVICTION: Final = "eviction"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    address: str
    """Path and query."""
    header: Callable[[str], str | None]
    """Returns a header by its name."""
    body: bytes = b""


class Answer(NamedTuple):
    code: int
    body: Object | str
    """An object is sent as JSON."""
    headers: Mapping[str, str] = _NO_HEADERS


Reply = Answer | Watching | Callable[[BaseHTTPRequestHandler], None]
"""The last is called with the connection, and has it alone."""


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

    def answer(self, asked: Asked) -> Reply:
        """Return the answer, or a watch that has begun."""
        try:
            if self.faults.latency:
                self.state.pause(self.faults.latency)
            user = self.access.user(asked.header("Authorization") or "")
            return self._read(user, asked) if asked.method == "GET" else self._write(user, asked)
        except RefusedError as error:
            after = (error.details or {}).get(RETRY)
            headers = {} if after is None else {"Retry-After": str(after)}
            return Answer(error.code, error.status(), headers)

    def _read(self, user: User, asked: Asked) -> Reply:
        if document := self._documents.get(urlsplit(asked.address).path):
            return Answer(200, document)
        request = Request.of(asked.address, self.kinds())
        is_watch = request.is_on("watch")
        verb = "watch" if is_watch else "get" if request.name else "list"
        with self._allowed(user, request, verb, asked):
            if is_watch:
                cuts = self.cuts
                return Watching(
                    self.objects.store,
                    request,
                    bookmarks=self.bookmarks,
                    is_cut=lambda: self.cuts != cuts,
                )
            return self.found(request, asked)

    def kinds(self) -> Sequence[Kind]:
        return self.objects.store.kinds

    def serves(self, kind: Kind, part: str) -> bool:
        """Return whether objects have this part at an address of its own."""
        return (part == "status" and kind.has_status) or (kind == POD and part == EVICTION)

    def found(self, request: Request, asked: Asked) -> Reply:  # noqa: ARG002 - its headers
        """Return an object, its part, or a list; raise ``RefusedError``."""
        if request.part == EVICTION:
            raise _wrong_method()
        if not request.name:
            return Answer(200, self.objects.list(request))
        return Answer(200, self.objects.store.get(request.kind, request.namespace, request.name))

    def _write(self, user: User, asked: Asked) -> Answer:
        kinds = self.kinds()
        if asked.address == REVIEWS:
            return Answer(201, review(self.access, kinds, user, json.loads(asked.body)))
        request = Request.of(asked.address, kinds)
        verb = _VERBS[asked.method]
        with self._allowed(user, request, verb, asked):
            is_of_one = bool(request.name) and request.part != EVICTION
            if is_of_one == (verb == "create"):
                raise _wrong_method()
            return self._written(request, verb, asked)

    def _written(self, request: Request, verb: str, asked: Asked) -> Answer:
        objects, kind, media = self.objects, request.kind, asked.header("Content-Type")
        place = (kind, request.namespace, request.name)
        if request.part == EVICTION:
            return Answer(201, objects.evict(request, object_of(EVICTIONS, media, asked.body)))
        if verb == "delete":
            return Answer(200, objects.delete(*place, options_of(media, asked.body)))
        if verb == "patch":
            return Answer(200, objects.patch(request, json.loads(asked.body), media))
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
            if request.part and not self.serves(kind, request.part):
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
        about = (wanted.verb, wanted.kind.group, wanted.resource, wanted.namespace, wanted.name)
        with self.state:
            self.log.append(ApiRequest(user.name, *about, code, client))
