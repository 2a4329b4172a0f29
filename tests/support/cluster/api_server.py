"""The stand-in for an API server: the simulated cluster's, with what kubectl asks of it."""

import base64
import hashlib
import json
import struct
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from threading import Event, Lock, Thread
from typing import IO, Any

from typing_extensions import override

from cluster.admission import VERSION, CheckedObjects
from cluster.kinds import EVENT, POD, Kind, Object, documents
from cluster.node import ProcessNode
from cluster.store import Store
from deviceplugin_testing.simulator._control_plane.api_server.access import (
    Access,
    Faults,
    User,
    Wanted,
)
from deviceplugin_testing.simulator._control_plane.api_server.answering import (
    Answer,
    Answering,
    Asked,
    Reply,
)
from deviceplugin_testing.simulator._control_plane.api_server.http_server import ApiHttpServer
from deviceplugin_testing.simulator._control_plane.api_server.request import Request, Watching
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError

PROTOCOL = "v5.channel.k8s.io"
_KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 2, 8
_OUT, _ERR, _STATUS = 1, 2, 3


def accepted(key: str) -> str:
    """Return what proves that the other side speaks WebSocket."""
    return base64.b64encode(hashlib.sha1(f"{key}{_KEY}".encode()).digest()).decode()


def serve(process: subprocess.Popen[bytes], wire: BufferedIOBase) -> None:
    """Send what the process prints, and how it ends; nothing is read, as there is no input."""
    lock = Lock()
    assert process.stdout is not None
    assert process.stderr is not None
    copying = [
        Thread(target=_copy, args=(stream, channel, wire, lock))
        for stream, channel in ((process.stdout, _OUT), (process.stderr, _ERR))
    ]
    for thread in copying:
        thread.start()
    for thread in copying:
        thread.join()
    code = process.wait()
    _send(wire, _BINARY, bytes([_STATUS]) + json.dumps(status(code)).encode())
    _send(wire, _CLOSE, struct.pack("!H", 1000))


def _copy(stream: IO[bytes], channel: int, wire: BufferedIOBase, lock: Lock) -> None:
    while found := stream.read(4096):
        with lock:
            _send(wire, _BINARY, bytes([channel]) + found)


def _send(wire: BufferedIOBase, code: int, payload: bytes) -> None:
    length = len(payload)
    size = bytes([length]) if length < 126 else struct.pack("!BH", 126, length)
    wire.write(bytes([0x80 | code]) + size + payload)
    wire.flush()


def status(code: int) -> Object:
    """Return what the kubelet says of a command that ended."""
    if not code:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": causes},
    }


_COLUMNS = ("Last Seen", "Type", "Reason", "Object", "Message")


class KubectlAnswering(Answering):
    """Serves the objects of ``store``, and what runs on ``node``."""

    def __init__(self, store: Store, node: ProcessNode | None = None) -> None:
        self.checked = CheckedObjects(store)
        super().__init__(self.checked, Access(store), Faults())
        self._node = node
        self._documents = documents(VERSION)
        self.away = Event()
        """Set while nothing is answered."""
        self.unknown: set[Kind] = set()
        """Kinds whose definitions have been deleted."""
        self.asked: list[str] = []
        """The plural of the kind of each request; empty for those while it was away."""

    @override
    def answer(self, asked: Asked) -> Reply:
        if self.away.is_set():
            self.asked.append("")
            return Answer(503, {})
        reply = super().answer(asked)
        if isinstance(reply, Watching):
            cut, kind = reply.is_cut, reply._request.kind
            reply.is_cut = lambda: cut() or kind in self.unknown
        return reply

    @override
    def kinds(self) -> Sequence[Kind]:
        return [kind for kind in super().kinds() if kind not in self.unknown]

    @override
    def _note(self, user: User, wanted: Wanted, code: int, client: str) -> None:
        super()._note(user, wanted, code, client)
        self.asked.append(wanted.kind.plural)

    @override
    def serves(self, kind: Kind, part: str) -> bool:
        return super().serves(kind, part) or (kind == POD and part in {"log", "exec"})

    @override
    def found(self, request: Request, asked: Asked) -> Reply:
        if request.part == "log":
            return Answer(200, self._container(request).said())
        if request.part == "exec":
            return self._exec(request, asked)
        is_table = "as=Table" in (asked.header("Accept") or "")
        if request.kind == EVENT and is_table and not request.name:
            return Answer(200, _table(self.objects.list(request)))
        return super().found(request, asked)

    def _container(self, request: Request) -> Any:
        pod = self.objects.store.get(POD, request.namespace, request.name)
        name = request.option("container") or pod["spec"]["containers"][0]["name"]
        assert self._node is not None
        try:
            return self._node.container(pod, name)
        except LookupError:
            message = f'container "{name}" in pod "{request.name}" is waiting to start'
            raise RefusedError(400, "BadRequest", message) from None

    def _exec(self, request: Request, asked: Asked) -> Reply:
        container, pipe = self._container(request), subprocess.PIPE
        offered = asked.header("Sec-WebSocket-Protocol") or ""
        if PROTOCOL not in offered or request.option("stdin") == "true":
            raise RefusedError(400, "BadRequest", "only by WebSocket, and without input")
        try:
            process = container.run(request.query["command"], pipe, pipe)
        except OSError as error:
            raise RefusedError(500, "InternalError", str(error)) from error
        return partial(_speak, process, asked.header("Sec-WebSocket-Key") or "")


def _speak(process: subprocess.Popen[bytes], key: str, connection: BaseHTTPRequestHandler) -> None:
    connection.send_response(101)
    connection.send_header("Upgrade", "websocket")
    connection.send_header("Connection", "Upgrade")
    connection.send_header("Sec-WebSocket-Accept", accepted(key))
    connection.send_header("Sec-WebSocket-Protocol", PROTOCOL)
    connection.end_headers()
    with process:
        serve(process, connection.wfile)


def _table(found: Object) -> Object:
    """Return what kubectl prints of Events."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": found["metadata"],
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": 0}
            for name in _COLUMNS
        ],
        "rows": [
            {"cells": [*_cells(one)], "object": {"kind": "Event", "apiVersion": "v1", **one}}
            for one in found["items"]
        ],
    }


def _cells(event: Object) -> Iterator[str]:
    about = event["involvedObject"]
    yield event.get("lastTimestamp") or event.get("eventTime") or ""
    yield event.get("type", "")
    yield event.get("reason", "")
    yield f"{about['kind'].lower()}/{about['name']}"
    yield event.get("message", "")


def server(answering: KubectlAnswering) -> ApiHttpServer:
    return ApiHttpServer(answering, None)
