"""Asking containerd and CRI-O for the configuration that they run with, on their sockets."""

import json
import re
import socket
import time
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

from deviceplugin.checks._runtime_files import GIVES_DEVICES, Section, of_cri, of_crio, table

_MOST_BYTES: Final = 4 << 20
_SERVICE: Final = "/runtime.v1.RuntimeService"
_WIDEST: Final = 60
_CHUNK: Final = 1 << 16
_VERSION: Final = re.compile(r" v?(\d{1,4})\.\d")
_ODD: Final = "has no configuration that can be read"


class Answer(NamedTuple):
    """What a container runtime says of itself."""

    name: str
    """Such as ``containerd 2.1.4``."""
    section: Section
    is_2: bool = False
    """Whether it is containerd 2 or newer."""


def ask_containerd(path: Path, timeout: float) -> Answer:
    """Return what the containerd that listens on ``path`` says, within ``timeout`` seconds.

    Raises:
        OSError: It does not answer, or its answer is not understood. It says why.
    """
    from deviceplugin._platform import rpc  # it loads gRPC
    from deviceplugin.proto.cri import cri_status_pb2 as pb

    limits: Any = {"timeout": timeout / 2, "most": _MOST_BYTES}
    said = rpc.ask(path, f"{_SERVICE}/Version", pb.StatusRequest(), pb.VersionResponse, **limits)
    asked = pb.StatusRequest(verbose=True)
    status = rpc.ask(path, f"{_SERVICE}/Status", asked, pb.StatusResponse, **limits)
    name = " ".join(f"{said.runtime_name} {said.runtime_version}".split())[:_WIDEST]
    is_2 = (found := _VERSION.search(name)) is not None and int(found[1]) > 1
    try:
        return Answer(name, of_answer(json.loads(status.info["config"]), is_2=is_2), is_2)
    except (ValueError, RecursionError) as error:
        raise OSError(f"{name} {_ODD}: {error}") from error


def ask_crio(path: Path, timeout: float) -> Answer:
    """Return what CRI-O says over HTTP, as ``ask_containerd`` does."""
    try:
        document = tomllib.loads(_over_http(path, timeout).decode())
    except (ValueError, RecursionError) as error:
        raise OSError(f"CRI-O {_ODD}: {error}") from error
    return Answer("CRI-O", of_crio(table(document, "crio", "runtime")))


def of_answer(document: object, *, is_2: bool) -> Section:
    """Return the section in containerd's own spelling of its configuration as JSON."""
    found, inner = table(document), table(document, "containerd")
    if not inner:
        raise OSError("containerd has no configuration of runtimes")
    own = {**inner, "default_runtime_name": inner.get("defaultRuntimeName")}
    cri = {"cdi_spec_dirs": found.get("cdiSpecDirs"), "enable_cdi": found.get("enableCDI")}
    cri[GIVES_DEVICES] = found.get(GIVES_DEVICES)  # the one that is not in camel case
    return of_cri({**cri, "containerd": own}, cdi=is_2)


def _over_http(path: Path, timeout: float) -> bytes:
    """Return CRI-O's configuration, which it serves over HTTP beside gRPC."""
    end = time.monotonic() + timeout
    received = bytearray()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        client.connect(str(path))
        client.sendall(b"GET /config HTTP/1.0\r\nHost: localhost\r\n\r\n")
        while chunk := client.recv(_CHUNK):
            received += chunk
            left = end - time.monotonic()
            if left <= 0 or len(received) > _MOST_BYTES:
                raise TimeoutError("does not end its answer")
            client.settimeout(left)
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    if " 200" not in status:
        raise OSError(f"answers {status[:80]!r} for /config")
    return body
