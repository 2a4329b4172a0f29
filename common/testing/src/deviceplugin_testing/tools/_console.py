"""Commands, one per line: typed, from a script, or over a local socket."""

import math
import shlex
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Final, TextIO

from deviceplugin._app.signals import handled
from deviceplugin._app.text_table import aligned
from deviceplugin_testing.simulator._monitor import Monitor

_DONE: Final = "ok"
_FAILED: Final = "error: "


class CommandError(Exception):
    """A command failed. The message says why."""


@dataclass(frozen=True, slots=True)
class Command:
    run: Callable[..., str | None]
    """Called with the arguments; returns the text to show."""
    words: str
    """The arguments for the usage message, such as ``FILE [NAME]``."""
    summary: str

    def check(self, name: str, given: Sequence[str]) -> None:
        """Raise ``CommandError`` if the number of arguments is wrong."""
        wanted = self.words.split()
        least = sum(not word.startswith("[") for word in wanted)
        many = "..." in self.words
        if len(given) < least or (len(given) > len(wanted) and not many):
            raise CommandError(f"usage: {name} {self.words}".rstrip())


class Console:
    """Runs commands from several sources. A slow command does not delay other sources."""

    def __init__(self, commands: Mapping[str, Command], out: TextIO) -> None:
        self._commands = {
            **commands,
            "sleep": Command(self._sleep, "SECONDS", "wait"),
            "help": Command(self._help, "", "list the commands"),
            "quit": Command(self._quit, "", "stop"),
        }
        self._out = out
        self.running = Monitor()
        """It is over when the console must stop."""

    def show(self, text: str) -> None:
        if text:
            self._out.write(text + "\n")
            self._out.flush()

    def execute(self, line: str) -> str:
        """Run the command in ``line`` and return its output; raise ``CommandError`` if it fails."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise CommandError(f"{line}: {error}") from None
        if not words:
            return ""
        name, *rest = words
        command = self._commands.get(name)
        if command is None:
            raise CommandError(f"unknown command {name!r}; try help")
        command.check(name, rest)
        return command.run(*rest) or ""

    def run_script(self, lines: Iterator[str] | TextIO) -> bool:
        """Run the commands in ``lines`` up to the first that fails; return whether none did."""
        for line in lines:
            if self.running.is_over():
                break
            try:
                self.show(self.execute(line))
            except CommandError as error:
                self.show(f"{_FAILED}{error}")
                return False
        return True

    def read(self, lines: TextIO) -> None:
        """Run typed commands until the end of ``lines``; show failures."""
        for line in lines:
            try:
                self.show(self.execute(line))
            except CommandError as error:
                self.show(f"{_FAILED}{error}")
        self.running.end()

    def _help(self) -> str:
        commands = self._commands.items()
        return "\n".join(
            aligned([(f"{name} {each.words}", each.summary) for name, each in commands])
        )

    def _quit(self) -> None:
        self.running.end()

    def _sleep(self, seconds: str) -> None:
        self.running.pause(number(seconds))


def number(text: str) -> float:
    """Return the number in ``text``; raise ``CommandError`` if it is not one."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise CommandError(f"{text!r} is not a number")
    return value


@contextmanager
def listening(console: Console, path: Path) -> Iterator[None]:
    """Run commands that arrive on the socket ``path``, while the context is open.

    The answer to each line is its output and then ``ok``, or ``error:`` and the reason.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                try:
                    shown = console.execute(line.decode())
                    answer = f"{shown}\n{_DONE}" if shown else _DONE
                except CommandError as error:
                    answer = f"{_FAILED}{error}"
                self.wfile.write(answer.encode() + b"\n")

    path.unlink(missing_ok=True)
    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="control")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            path.unlink(missing_ok=True)


def send(path: Path, line: str, out: TextIO = sys.stdout) -> bool:
    """Send ``line`` to a console, and return whether it succeeded; ``OSError`` if none listens."""
    with socket(AF_UNIX, SOCK_STREAM) as client:
        client.connect(str(path))
        client.sendall(line.encode() + b"\n")
        for answer in client.makefile(encoding="utf-8"):
            if answer.rstrip() == _DONE:
                return True
            out.write(answer)
            if answer.startswith(_FAILED):
                break
    return False


def stopping(console: Console) -> AbstractContextManager[None]:
    """Stop ``console`` at SIGTERM and SIGINT, while the context is open."""

    def stop(_signal: int, _frame: object) -> None:
        console.running.end()

    return handled(stop, signal.SIGTERM, signal.SIGINT)


def opened(script: str | None, stack: ExitStack) -> TextIO | None:
    """Return the file to read commands from, open until ``stack`` is closed."""
    if script is None:
        return None
    return sys.stdin if script == "-" else stack.enter_context(Path(script).open(encoding="utf-8"))


def serve(console: Console, script: TextIO | None) -> int:
    """Run the script, or typed commands until the console stops; return the exit status."""
    if script is not None:
        return 0 if console.run_script(script) else 1
    if sys.stdin is not None and sys.stdin.isatty():
        threading.Thread(target=console.read, args=(sys.stdin,), daemon=True).start()
    console.running.pause()
    return 0
