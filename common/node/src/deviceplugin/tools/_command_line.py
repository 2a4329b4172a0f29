"""What the commands of ``deviceplugin`` share: the command line, exit statuses, and reports."""

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Final, cast

from deviceplugin._app import flags
from deviceplugin._app.exit_status import FAILED, INTERRUPTED, USAGE, complain
from deviceplugin._app.signals import handled
from deviceplugin._config import values
from deviceplugin._config.documents import faults
from deviceplugin._config.loading import load
from deviceplugin._config.settings import Settings
from deviceplugin._platform import open_files
from deviceplugin.errors import ConfigError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_JSON: Final = "json"
_PLAIN: Final = "\x1b[0m"
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)


def parser(
    command: str, description: str, examples: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """Return the parser of ``deviceplugin COMMAND``, without options; it does not reflow text."""
    return flags.Parser(
        prog=f"deviceplugin {command}",
        usage=usage,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Return the arguments before ``--``, and those after it; None if there is no ``--``."""
    if "--" not in argv:
        return argv, None
    index = list(argv).index("--")
    return argv[:index], argv[index + 1 :]


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    act: Callable[[argparse.Namespace], int],
    failures: tuple[type[Exception], ...] = (),
    *,
    starts: bool = False,
) -> int:
    """Parse ``argv``, call ``act`` with the options, and return the exit status.

    If it ``starts`` processes, SIGTERM and SIGHUP end it as Ctrl-C does, and so these too; but not
    one that is ignored, as with ``nohup``.

    0 after ``--help``; 2 for a wrong command line or a ``ConfigError``; 1 if ``act`` raises one of
    ``failures`` or writes to a closed pipe or a full disk; 130 if it is interrupted. Errors are
    printed.
    """
    expected: tuple[type[Exception], ...] = (OSError, *failures)
    try:
        options = flags.parse_strictly(parser, argv)
        open_files.raise_limit()
        ends = [one for one in _ENDS if starts and signal.getsignal(one) != signal.SIG_IGN]
        with handled(signal.default_int_handler, *ends):
            status = act(options)
        sys.stdout.flush()
    except SystemExit:  # --help
        return 0
    except BrokenPipeError:
        _discard_output()
        return FAILED
    except ConfigError as error:
        complain(parser.prog, error)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except expected as error:
        is_full = isinstance(error, OSError) and error.errno in _FULL
        if not is_full and not isinstance(error, failures):
            raise
        complain(parser.prog, f"cannot write: {_why(error)}" if is_full else _why(error))
        _discard_output()
        return FAILED
    return status


def _discard_output() -> None:
    """Keep Python from flushing what cannot be written at exit: that would be reported too."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _why(error: Exception) -> str:
    """Return the message of an error, with the file first if it is about one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def has_colour() -> bool:
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return sys.stdout.isatty() and wanted


def duration(text: str) -> timedelta:
    try:
        return cast("timedelta", values.parse(text, timedelta))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def add_seconds(
    parser: argparse.ArgumentParser, name: str, default: str, words: str, least: str, most: str = ""
) -> None:
    """Add an option that is a duration from ``least`` to ``most``, in seconds.

    It is None without a ``default``.
    """
    wrong = f"is not between {least} and {most}" if most else f"is less than {least}"
    shortest, longest = duration(least), duration(most) if most else timedelta.max

    def read(text: str) -> float:
        if not shortest <= (found := duration(text)) <= longest:
            raise argparse.ArgumentTypeError(f"{text!r} {wrong}")
        return found.total_seconds()

    words = f"{words} ({default})" if default else words
    parser.add_argument(name, type=read, default=default or None, metavar="TIME", help=words)


def add_repeated(parser: argparse.ArgumentParser, name: str, metavar: str, words: str) -> None:
    """Add an option that can be given several times, to a list."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=words)


def add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add an option for each of these settings of a plugin, which ``settings_of`` reads."""
    for name in names:
        parser.add_argument(f"--{name}", metavar="VALUE", help="the plugin's setting of this name")


def settings_of(options: argparse.Namespace, names: Iterable[str]) -> Settings:
    """Return the settings of a plugin, as options and environment say; raise ``ConfigError``."""
    given = {name: getattr(options, name.replace("-", "_")) for name in names}
    return load(Settings, flags={name: value for name, value in given.items() if value})


def add_timeout(
    parser: argparse.ArgumentParser, default: int, what: str = "for each answer"
) -> None:
    """Add the option ``--timeout``; ``default`` is in seconds."""
    add_seconds(parser, "--timeout", f"{default}s", f"how long to wait {what}", "1ms", "1m")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--output``, by which ``write`` chooses."""
    choices = ["table", _JSON]
    words = "the form of the output (table)"
    parser.add_argument("--output", choices=choices, default="table", help=words)


def write(
    options: argparse.Namespace,
    table: Callable[[], str | Iterable[str]],
    document: Callable[[], Mapping[str, Any]],
) -> None:
    """Print the ``table`` or its lines, or the ``document`` as JSON, as ``--output`` says."""
    text = to_json(document()) if is_json(options) else table()
    sys.stdout.writelines([text] if isinstance(text, str) else text)


def is_json(options: argparse.Namespace) -> bool:
    return bool(options.output == _JSON)


def aside(options: argparse.Namespace) -> AbstractContextManager[object]:
    """Print to standard error what is for people, while in the context, if JSON is asked for."""
    return redirect_stdout(sys.stderr) if is_json(options) else nullcontext()


def check_names(kind: str, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise ``ConfigError`` for a name in ``wanted`` that is not ``known``.

    The message suggests a similar name, or ``--list``.
    """
    for name in wanted:
        if name not in known:
            near = faults.nearest(name, known)
            advice = f"did you mean {near}?" if near else "--list shows all"
            raise ConfigError(f"no {kind} {name!r}: {advice}")


def document(form: int, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``parts``, preceded by ``form``, the version of their form, and by our version."""
    return {"format": form, "deviceplugin": version("deviceplugin"), **parts}


def to_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


class Tone(StrEnum):
    """The severity of a verdict, as a terminal's colour."""

    GOOD = "\x1b[32m"
    DOUBTFUL = "\x1b[33m"
    BAD = "\x1b[1;31m"
    QUIET = "\x1b[2m"


@dataclass(frozen=True, slots=True)
class Line:
    """A verdict on something."""

    verdict: str
    tone: Tone
    name: str
    text: str
    notes: Sequence[tuple[str, str]] = ()
    """Notes below the line, each with its label. Empty notes are skipped."""

    def show(self, widths: tuple[int, int], *, colour: bool, indent: str = "") -> str:
        """Return it as text. ``widths`` are those of the verdict and the name."""
        of_verdict, of_name = widths
        verdict = f"{self.verdict:{of_verdict}}"
        if colour:
            verdict = f"{self.tone}{verdict}{_PLAIN}"
        first = f"{indent}{verdict}  {self.name:{of_name}}  {_one_line(self.text)}"
        below = indent + " " * (of_verdict + 2)
        width = 1 + max((len(label) for label, _ in self.notes), default=0)
        notes = [f"{below}{f'{n}:':{width}} {_one_line(text)}" for n, text in self.notes if text]
        return "\n".join([first, *notes])


def _one_line(words: str) -> str:
    """Return ``words`` as one line, without what could move or colour a terminal."""
    return " ".join("".join(one if one.isprintable() else " " for one in words).split())
