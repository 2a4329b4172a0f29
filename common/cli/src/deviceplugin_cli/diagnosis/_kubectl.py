"""Commands in containers, and logs, by ``kubectl``.

It is there when this is its plugin. It knows each way to log in, and each proxy, and speaks the
protocol of ``exec``: a WebSocket with channels, for which Python has no client.
"""

import os
import shlex
import signal
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from threading import Timer
from typing import Final, NamedTuple

from deviceplugin._config.documents.faults import printable
from deviceplugin.errors import ConfigError
from deviceplugin_cli.diagnosis._masks import said

MOST: Final = 8 * 1024**2
"""Most bytes that a command may print."""
_MOST_ERRORS: Final = 64 * 1024
_ADVICE: Final = ": install kubectl, or name it by --kubectl"
_END: Final = "command terminated with"


class Ran(NamedTuple):
    """What a command printed, and how it ended."""

    out: str
    status: int | None
    """None if it was ended, because it took too long or printed too much."""
    error: str
    """Why, or the last line that it printed to standard error."""


class Kubectl:
    """``kubectl`` with ``words`` before each command. Thread-safe."""

    def __init__(self, words: Sequence[str], timeout: float) -> None:
        self._words, self._timeout = tuple(words), timeout
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    @classmethod
    def of(cls, options: Namespace) -> "Kubectl":
        """Return it for the cluster of the options; ``ConfigError`` for a wrong ``--kubectl``.

        ``--api`` is not for it: ``kubectl proxy`` lets no command through.
        """
        try:
            words = shlex.split(options.kubectl)
        except ValueError as error:
            raise ConfigError(f"--kubectl {options.kubectl!r}: {error}") from error
        if not words:
            raise ConfigError("--kubectl: names no command")
        given = {"kubeconfig": options.kubeconfig, "context": options.context}
        words += [f"--{name}={value}" for name, value in given.items() if value]
        return cls(words, options.timeout)

    def run(self, *words: str) -> Ran:
        """Run it within the time limit, and without input."""
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(  # noqa: S603
                    [*self._words, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    process_group=0,
                )
            except OSError as error:
                return Ran("", None, f"{self._words[0]}: {error.strerror}{_ADVICE}")
            self._running.add(process)
            if self._is_over:
                _kill(process)
            out, ended = self._read(process)
            self._running.discard(process)
            errors.seek(0)
            text = errors.read(_MOST_ERRORS).decode(errors="replace")
        return Ran(out, None if ended else process.returncode, ended or _last(text))

    def _read(self, process: subprocess.Popen[bytes]) -> tuple[str, str]:
        """Return what it printed, and why it was ended, if it was."""
        ended: list[str] = []

        def end() -> None:
            ended.append(f"no answer within {self._timeout:g} s: raise --timeout")
            _kill(process)

        assert process.stdout is not None
        timer = Timer(self._timeout, end)
        timer.start()
        with process:
            out = process.stdout.read(MOST + 1)
            if len(out) > MOST:
                ended.append(f"it prints more than {MOST >> 20} MiB")
                _kill(process)
        timer.cancel()
        return out[:MOST].decode(errors="replace"), "".join(ended[:1])

    def stop(self) -> None:
        """End what runs now, and whatever is run later."""
        self._is_over = True
        for process in list(self._running):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it and what it has started, such as a program that finds credentials."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last(text: str) -> str:
    """Return what matters of standard error: the last line that is not kubectl's own end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(_END)]
    return printable(said((own or lines or [""])[-1]))


def add_kubectl(parser: ArgumentParser) -> None:
    """Add the option ``--kubectl``."""
    words = "the command that runs programs in pods, such as 'k3s kubectl' (kubectl)"
    parser.add_argument("--kubectl", default="kubectl", metavar="COMMAND", help=words)
