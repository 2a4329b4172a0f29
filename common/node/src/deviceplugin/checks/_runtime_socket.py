"""Asking containerd and CRI-O for the configuration that they run with, on their sockets."""

import json
import re
import socket
import time
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

from deviceplugin.checks._runtime_files import Section, of_cri, of_crio, strings, table

_MOST_BYTES: Final = 4 << 20
_SERVICE: Final = "/runtime.v1.RuntimeService"
_WIDEST: Final = 40
_CHUNK: Final = 1 << 16
_VERSION: Final = re.compile(r"v?(\d{1,4})\.\d")


class Answer(NamedTuple):
    """What a container runtime says of itself."""

    name: str
    """containerd or cri-o."""
    version: str
    section: Section

    @property
    def is_2(self) -> bool:
        """Whether it is containerd 2 or newer."""
        found = _VERSION.match(self.version)
        return found is not None and int(found[1]) > 1


def ask(path: Path, timeout: float) -> Answer:
    """Return what the runtime that listens on ``path`` says, within about ``timeout`` seconds.

    Raises:
        OSError: It does not answer, or its answer is not understood. It says why.
    """
    from deviceplugin._platform import rpc  # it loads gRPC
    from deviceplugin.proto.cri import cri_status_pb2 as pb

    limits: Any = {"timeout": timeout / 2, "most": _MOST_BYTES}
    version = rpc.ask(path, f"{_SERVICE}/Version", pb.StatusRequest(), pb.VersionResponse, **limits)
    name, number = (_plain(one) for one in (version.runtime_name, version.runtime_version))
    try:
        if name == "cri-o":
            document = tomllib.loads(_of_crio(path, timeout / 2).decode())
            return Answer(name, number, of_crio(document))
        asked = pb.StatusRequest(verbose=True)
        status = rpc.ask(path, f"{_SERVICE}/Status", asked, pb.StatusResponse, **limits)
        found: object = json.loads(status.info["config"])
    except (ValueError, RecursionError) as error:
        raise OSError(f"{name} has no configuration that can be read: {error}") from error
    bare = Answer(name, number, Section())
    return bare._replace(section=of_answer(found, is_2=bare.is_2))


def _plain(text: str) -> str:
    return " ".join(text.split())[:_WIDEST]


def of_answer(document: object, *, is_2: bool) -> Section:
    """Return the section in containerd's own spelling of its configuration as JSON."""
    found = table({"": document}, "")
    inner = table(found, "containerd")
    if not inner:
        raise OSError("containerd has no configuration of runtimes")
    own = {**inner, "default_runtime_name": inner.get("defaultRuntimeName", "")}
    dirs = [*strings(found, "cdiSpecDirs")]
    cri = {"containerd": own, "cdi_spec_dirs": dirs, "enable_cdi": found.get("enableCDI")}
    return of_cri(cri, cdi=is_2)


def _of_crio(path: Path, timeout: float) -> bytes:
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
