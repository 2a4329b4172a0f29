"""Plugins of one name on a node, each in a process of its own, and what is seen meanwhile."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from deviceplugin_testing.conformance._subject import free_port
from patience import PATIENCE
from plugin_process import Process, started

_T = TypeVar("_T")
_EVERY: Final = 0.02


@contextmanager
def always(look: Callable[[], _T], expected: _T) -> Iterator[list[_T]]:
    """Look again and again in the context; yield what else than ``expected`` was seen."""
    odd: list[_T] = []
    over = threading.Event()

    def run() -> None:
        while not over.wait(_EVERY):
            if (found := look()) != expected and found not in odd:
                odd.append(found)

    thread = threading.Thread(target=run, name="always", daemon=True)
    thread.start()
    try:
        yield odd
    finally:
        over.set()
        thread.join(PATIENCE)


class Served:
    """A process with an HTTP port, whose log is read as it is written."""

    def __init__(self, process: Process, port: int) -> None:
        self.process, self._port = process.process, port
        self.log: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def ready(self) -> bool:
        return self.get("/readyz")[0] == HTTPStatus.OK

    def _read(self) -> None:
        assert self.process.stderr is not None
        with suppress(ValueError):  # it was killed amid a line, or the test is over
            for line in self.process.stderr:
                self.log.append(json.loads(line))

    def events(self) -> list[str]:
        return [one["event"] for one in self.log]

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body; 0 if nobody answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}{path}", timeout=PATIENCE
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)


@contextmanager
def running(plugin_dir: Path, *arguments: str) -> Iterator[Served]:
    """Run the gopher plugin; it is killed at the end."""
    port = free_port()
    with started(plugin_dir, *arguments, f"--http-address=127.0.0.1:{port}") as process:
        yield Served(process, port)
