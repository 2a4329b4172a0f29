"""The socket by which ``deviceplugin hold`` talks to a plugin: a line of JSON each way."""

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from deviceplugin._platform import hooks
from deviceplugin._platform.hooks import reason_of
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

SOCKET: Final = ".socket"
"""Its name begins with a dot, because a kubelet that finds it must not take it for a plugin's."""
LONGEST: Final = 64 << 10
"""Bytes of a request."""
_LONGEST_REPLY: Final = 64 << 20
_TIMEOUT: Final = 5.0
_REST: Final = 1.0
"""Seconds after an error of the kernel, such as no file descriptor being free."""

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class HoldSocket:
    """Serves ``answer`` to this user and to root, who alone can enter its folder, one at a time."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._closed = Event()
        self._socket: socket.socket | None = None
        self._problems = Problems(log)

    def open(self, folder: Path) -> None:
        """Serve in ``folder``, in a thread of its own, unless it does. A failure is logged."""
        if self._socket is not None:
            return
        listener = socket.socket(socket.AF_UNIX)
        try:
            (folder / SOCKET).unlink(missing_ok=True)
            with ShortPath(folder) as short:
                listener.bind(f"{short}/{SOCKET}")
            (folder / SOCKET).chmod(0o600)
            listener.listen(4)
        except OSError as error:
            listener.close()
            self._problems.say("open", "hold socket unavailable", error=str(error))
            return
        self._socket = listener
        Thread(target=self._run, args=(listener,), name="hold-socket", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # it ends the wait for a client

    def _run(self, listener: socket.socket) -> None:
        with listener:
            while not self._closed.is_set():
                try:
                    client, _ = listener.accept()
                except OSError:  # it is closed, or no file is left
                    self._closed.wait(_REST)
                    continue
                with client, suppress(OSError):  # a client that is gone, or says nothing
                    self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        reply: Mapping[str, Any]
        try:
            request: Mapping[str, Any] = dict(json.loads(read_line(client, _TIMEOUT)))
            reply = hooks.call(self._answer, request)  # whatever it raises, others are served
        except DevicePluginError as error:
            reply = {"error": reason_of(error)}
        except (ValueError, TypeError, RecursionError) as error:
            reply = {"error": f"the request cannot be read: {error}"}
        client.settimeout(_TIMEOUT)
        client.sendall(json.dumps(reply).encode() + b"\n")


class ShortPath:
    """A path to ``folder`` that is short enough for the address of a socket in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._folder}"

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)


def ask(folder: Path, request: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
    """Return what the plugin of ``folder`` answers; OSError or ValueError if it does not."""
    with ShortPath(folder) as short, socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        client.connect(f"{short}/{SOCKET}")
        client.sendall(json.dumps(request).encode() + b"\n")
        return dict(json.loads(read_line(client, timeout, _LONGEST_REPLY)))


def read_line(client: socket.socket, seconds: float, longest: int = LONGEST) -> bytes:
    """Return what comes up to the end of a line; ValueError if it is too long or has no end.

    TimeoutError if the end has not come within so many ``seconds``.
    """
    line, until = b"", time.monotonic() + seconds
    while not line.endswith(b"\n"):
        client.settimeout(max(0.001, until - time.monotonic()))
        part = client.recv(longest)
        if not part or len(line) > longest:
            raise ValueError(f"it is not a line of at most {longest} bytes")
        line += part
    return line
