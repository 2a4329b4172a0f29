"""A container runtime that only says how it is configured, as containerd or CRI-O says it."""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc

from deviceplugin.proto.cri import cri_status_pb2 as pb

Reply = Callable[[], bytes]


class AnsweringRuntime:
    """Listens on ``path`` while it is entered.

    gRPC and, for CRI-O, HTTP/1 are told apart by the first bytes of a connection, as CRI-O does.
    ``status`` and ``http`` are sent as they are.
    """

    def __init__(
        self,
        path: Path,
        name: str = "containerd",
        version: str = "v2.1.4",
        status: bytes | None = b"",
        http: bytes = b"",
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.ended = threading.Event()
        said = pb.VersionResponse(runtime_name=name, runtime_version=version).SerializeToString()
        calls = {"Version": said} if status is None else {"Version": said, "Status": status}
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(self._replying(answer))
            for method, answer in calls.items()
        }
        self._pool = ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool)
        service = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._inner = path.with_name(f"{path.name}.grpc") if http else path
        self._server.add_insecure_port(f"unix:{self._inner}")
        self._http = http
        self._path = path
        self._threads = list[threading.Thread]()
        self._listener = socket.socket(socket.AF_UNIX)

    def _replying(self, answer: bytes) -> Callable[[bytes, Any], bytes]:
        def reply(_request: bytes, _context: Any) -> bytes:
            if answer == HANGS:
                self.ended.wait()
            return answer

        return reply

    def __enter__(self) -> Self:
        self._server.start()
        if self._http:
            self._listener.bind(str(self._path))
            self._listener.listen()
            self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        if self._http:
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._server.stop(0).wait()
        self._pool.shutdown()
        for thread in self._threads:
            thread.join()

    def _start(self, run: Callable[..., None], *words: object) -> None:
        thread = threading.Thread(target=run, args=words)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if client.recv(3, socket.MSG_PEEK) == b"PRI":
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._inner))
                self._start(_copy, client, server)
                self._start(_copy, server, client)
                continue
            with client, suppress(BrokenPipeError, ConnectionResetError):
                client.recv(1 << 16)  # what is unread at the end would reset the connection
                client.sendall(self._http)
                if self._http.endswith(HANGS):
                    self.ended.wait()


HANGS = b"hangs"


def config(document: object) -> bytes:
    """Return the answer of containerd whose configuration is ``document``, or a string as it is."""
    text = document if isinstance(document, str) else json.dumps(document)
    return pb.StatusResponse(info={"config": text}).SerializeToString()


def of_containerd(
    default: str = "nvidia", *, systemd: bool = True, **others: Any
) -> Mapping[str, Any]:
    """Return containerd's configuration as JSON, with NVIDIA's runtime."""
    options = {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": systemd}
    runtimes = {"nvidia": {"options": options}, "runc": {"options": {}}}
    return {"containerd": {"defaultRuntimeName": default, "runtimes": runtimes}, **others}


def _copy(source: socket.socket, target: socket.socket) -> None:
    with source:
        try:
            while chunk := source.recv(1 << 16):
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one of the two has gone
            return
