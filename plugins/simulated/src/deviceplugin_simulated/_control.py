"""A Unix socket on which a running plugin is told what shall happen: a JSON object, and a reply."""

import atexit
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SUFFIX: Final = ".new"
"""What the name of the socket has at its end until it can be used."""
_MAX_REQUEST: Final = 65536
"""Bytes."""
_TIMEOUT: Final = 1.0
"""Seconds that a client has to ask, and to take its reply. Others wait meanwhile."""


class Control:
    """The socket at ``path``; ``obey`` gets each request and returns the reply, both one line.

    Only the user that runs the plugin, and root, can open it.
    """

    def __init__(self, path: Path, obey: Callable[[bytes], bytes]) -> None:
        self._path = path
        self._obey = obey

    @contextmanager
    def listening(self) -> Iterator[Callable[[float], None]]:
        """Give a function that waits so many seconds, less if it could serve a client.

        The socket takes the place of an older one, and is removed at the end.

        Raises:
            OSError: The socket cannot be made, or there is something else in its place.
        """
        with socket.socket(socket.AF_UNIX) as listener:
            identity = self._make(listener)
            atexit.register(self._remove, identity)
            try:
                yield lambda seconds: self._serve(listener, seconds)
            finally:
                atexit.unregister(self._remove)
                self._remove(identity)

    def _make(self, listener: socket.socket) -> tuple[int, int]:
        if self._path.exists() and not self._path.is_socket():
            raise FileExistsError(f"{self._path}: is there already, and is no socket")
        new = Path(f"{self._path}{SUFFIX}")
        new.unlink(missing_ok=True)
        try:
            listener.bind(os.fspath(new))
        except OSError as error:
            raise OSError(f"{self._path}: {error.strerror}") from error
        new.chmod(0o600)
        listener.listen()
        new.rename(self._path)
        return _identity(self._path)

    def _remove(self, identity: tuple[int, int]) -> None:
        """Remove the socket unless it is somebody else's by now."""
        with suppress(OSError):
            if _identity(self._path) == identity:
                self._path.unlink()

    def _serve(self, listener: socket.socket, seconds: float) -> None:
        if not select.select([listener], [], [], seconds)[0]:
            return
        client, _ = listener.accept()
        with client, suppress(OSError):  # a client that goes away harms nobody but itself
            client.settimeout(_TIMEOUT)
            with client.makefile("rwb") as stream:
                stream.write(self._obey(stream.readline(_MAX_REQUEST)) + b"\n")


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
