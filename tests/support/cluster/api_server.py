"""The stand-in for an API server, over HTTP: what kubectl asks of it."""

import json
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from cluster import kubectl_exec
from cluster.admission import VERSION, admit, admit_change
from cluster.kinds import POD, Kind, Object, documents
from cluster.node import Node
from cluster.patches import patched
from cluster.policies import Policy
from cluster.request import Request, bookmark, listed, missing
from cluster.store import RefusedError, Store

DOCUMENTS = documents(VERSION)


class Server(ThreadingHTTPServer):
    """Serves ``store``, and what runs on ``node``, until ``stopping`` is set."""

    daemon_threads = True

    def __init__(self, store: Store, node: Node, away: Event | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.store, self.node, self.stopping = store, node, Event()
        self.away = away or Event()
        """Set while nothing is answered."""
        self.unknown: set[Kind] = set()
        """Kinds whose definitions have been deleted."""
        self.policies: list[Policy] = []
        """What an administrator lets nobody write."""
        self.asked: list[str] = []
        """The plural of the kind of each request; empty for those while it was away."""

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are no errors: kubectl does when it has seen enough."""


class Answering(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._create)

    def do_PATCH(self) -> None:
        self._answer(self._patch)

    def do_PUT(self) -> None:
        self._answer(self._replace)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests' output clean."""

    # Answers

    def _answer(self, work: Any) -> None:
        if self.server.away.is_set():
            self.server.asked.append("")
            self._send(503, b"{}", "application/json")
            return
        try:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            document = DOCUMENTS.get(urlsplit(self.path).path.strip("/"))
            answer = (200, document) if document else work(self._request(), body)
        except RefusedError as error:
            answer = error.code, error.status()
        if answer is not None:
            self._send(answer[0], json.dumps(answer[1]).encode(), "application/json")

    def _request(self) -> Request:
        request = Request.of(self.path)
        if request.kind in self.server.unknown:
            raise missing(self.path)
        self.server.asked.append(request.kind.plural)
        return request

    def _send(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    # Reading

    def _get(self, request: Request, _: Object) -> tuple[int, Object] | None:
        store = self.server.store
        streams = {"log": self._log, "exec": self._exec}
        if request.option("watch") in {"1", "true"}:
            streams[""] = self._watch
        elif request.name and not request.part:
            return 200, store.get(request.kind, request.namespace, request.name)
        if request.part in streams:
            streams[request.part](request)
            return None
        if request.part:
            raise missing(self.path)
        with store.changed:
            version, found = store.version, store.list(request.kind, request.namespace)
        table = "as=Table" in self.headers.get("Accept", "")
        page, rest = request.page([*filter(request.wants, found)])
        return 200, listed(request.kind, page, version, table=table, rest=rest)

    def _watch(self, request: Request) -> None:
        """Send what happens, from a version on, or what is there and what happens then.

        A bookmark ends what is there, for clients that ask for a list by such a watch. There are
        no others: a server may send them as it likes.
        """
        store, beginning = self.server.store, request.asks_for_beginning()
        with store.changed:
            version = int(request.option("resourceVersion") or 0)
            first = store.list(request.kind, request.namespace) if beginning else []
            version = store.version if beginning else version or store.version
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for found in filter(request.wants, first):
            self._chunk("ADDED", found)
        if request.option("sendInitialEvents") and beginning and request.asks_for_bookmarks():
            self._chunk("BOOKMARK", bookmark(request.kind, version))
        while not self.server.stopping.is_set() and request.kind not in self.server.unknown:
            store.wait(version, 1)
            changes = store.since(version)
            version += len(changes)
            for change in changes:
                if change.kind == request.kind and request.wants(change.object):
                    self._chunk(change.event, change.object)
        self.close_connection = True

    def _chunk(self, event: str, found: Object) -> None:
        text = json.dumps({"type": event, "object": found}).encode() + b"\n"
        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")

    def _container(self, request: Request) -> Any:
        pod = self.server.store.get(POD, request.namespace, request.name)
        name = request.option("container") or pod["spec"]["containers"][0]["name"]
        try:
            return self.server.node.container(pod, name)
        except LookupError:
            message = f'container "{name}" in pod "{request.name}" is waiting to start'
            raise RefusedError(400, "BadRequest", message) from None

    def _log(self, request: Request) -> None:
        self._send(200, self._container(request).said().encode(), "text/plain")

    def _exec(self, request: Request) -> None:
        container, pipe = self._container(request), subprocess.PIPE
        offered = self.headers.get("Sec-WebSocket-Protocol", "")
        if kubectl_exec.PROTOCOL not in offered or request.option("stdin") == "true":
            raise RefusedError(400, "BadRequest", "only by WebSocket, and without input")
        self.close_connection = True
        try:
            process = container.run(request.query["command"], pipe, pipe)
        except OSError as error:
            raise RefusedError(500, "InternalError", str(error)) from error
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        key = self.headers["Sec-WebSocket-Key"]
        self.send_header("Sec-WebSocket-Accept", kubectl_exec.accepted(key))
        self.send_header("Sec-WebSocket-Protocol", kubectl_exec.PROTOCOL)
        self.end_headers()
        with process:
            kubectl_exec.serve(process, self.wfile)

    # Writing

    def _create(self, request: Request, made: Object) -> tuple[int, Object]:
        store = self.server.store
        with store.changed:
            admit(store, request.kind, request.namespace, made)
            dry = request.option("dryRun") == "All"
            self._ask_policies("CREATE", request.kind, made, dry=dry)
            return 201, store.create(request.kind, made, dry=dry)

    def _ask_policies(self, verb: str, kind: Kind, made: Object, *, dry: bool = False) -> None:
        for policy in self.server.policies:
            policy(verb, kind, made, dry)

    def _replace(self, request: Request, made: Object) -> tuple[int, Object]:
        def edit(found: Object) -> Object:
            version = made.get("metadata", {}).get("resourceVersion")
            if version not in {None, found["metadata"]["resourceVersion"]}:
                message = f"the object has been modified: {request.kind.resource} {request.name}"
                raise RefusedError(409, "Conflict", message)
            new = {**made, "metadata": {**found["metadata"], **made.get("metadata", {})}}
            new["metadata"]["generation"] = found["metadata"]["generation"]
            admit_change(request.kind, found, new)
            self._ask_policies("UPDATE", request.kind, new)
            return {**new, "status": found.get("status", {})}

        return 200, self.server.store.change(request.kind, request.namespace, request.name, edit)

    def _patch(self, request: Request, patch: Object) -> tuple[int, Object]:
        if request.part == "status":
            patch = {"status": patch.get("status", {})}

        def edit(found: Object) -> Object:
            version = patch.get("metadata", {}).get("resourceVersion")
            if version not in {None, found["metadata"]["resourceVersion"]}:
                message = f'{request.kind.resource} "{request.name}": the object has been modified'
                raise RefusedError(409, "Conflict", message)
            new = patched(found, patch, self.headers["Content-Type"])
            if new is None:
                raise RefusedError(415, "UnsupportedMediaType", self.headers["Content-Type"])
            admit_change(request.kind, found, new)
            if not request.part:
                self._ask_policies("UPDATE", request.kind, new)
            return new

        return 200, self.server.store.change(request.kind, request.namespace, request.name, edit)

    def _delete(self, request: Request, options: Object) -> tuple[int, Object]:
        place = (request.kind, request.namespace, request.name)
        with self.server.store.changed:
            found = self.server.store.get(*place)
            uid = options.get("preconditions", {}).get("uid")
            if uid not in {None, found["metadata"]["uid"]}:
                raise RefusedError(409, "Conflict", f"the UID of {request.name} is another")
            self._ask_policies("DELETE", request.kind, found)
            left = self.server.store.delete(*place, options.get("gracePeriodSeconds"))
        return 200, left
