"""``kubectl exec``, by WebSocket: the output of a container's process, and how it ended."""

import base64
import hashlib
import json
import struct
import subprocess
from io import BufferedIOBase
from threading import Lock, Thread
from typing import IO

from cluster.kinds import Object

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
