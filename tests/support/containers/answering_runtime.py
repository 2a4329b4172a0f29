"""A container runtime that only says how it is configured, as containerd or CRI-O says it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from deviceplugin.proto.cri import cri_status_pb2 as pb

HANGS = b"hangs"
"""An answer that does not come, or does not end."""


@contextmanager
def containerd(path: Path, status: bytes | None, version: str = "v2.1.4") -> Iterator[None]:
    """Listen on ``path`` for gRPC. ``status`` is sent as it is; None if there is no such method."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    said = pb.VersionResponse(runtime_name="containerd", runtime_version=version)
    answers = {"Version": said.SerializeToString(), "Status": status}

    def replying(answer: bytes) -> Callable[[bytes, Any], bytes]:
        def reply(_request: bytes, _context: Any) -> bytes:
            if answer == HANGS:
                ended.wait()
            return answer

        return reply

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(replying(answer))
            for method, answer in answers.items()
            if answer is not None
        }
        service = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", handlers)
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield
        finally:
            ended.set()
            server.stop(0).wait()


@contextmanager
def crio(path: Path, answer: bytes) -> Iterator[None]:
    """Listen on ``path`` for one request of HTTP."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as client:
            client.recv(1 << 16)  # what is unread at the end would reset the connection
            client.sendall(answer)
            if answer.endswith(HANGS):
                ended.wait()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)  # in case nobody has connected
            thread.join()


def config(document: object) -> bytes:
    """Return the answer of containerd whose configuration is ``document``, or a string as it is."""
    text = document if isinstance(document, str) else json.dumps(document)
    return pb.StatusResponse(info={"config": text}).SerializeToString()


def of_containerd(default: str = "nvidia") -> Mapping[str, Any]:
    """Return containerd's configuration as JSON, with NVIDIA's runtime."""
    options = {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": True}
    runtimes = {"nvidia": {"options": options}, "runc": {"options": {}}}
    return {"containerd": {"defaultRuntimeName": default, "runtimes": runtimes}}
