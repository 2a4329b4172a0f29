"""What the commands of ``deviceplugin`` share: parsing the command line, and exit statuses."""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Final, cast

from deviceplugin._app.exit_status import FAILED, INTERRUPTED, USAGE, complain
from deviceplugin._config import values
from deviceplugin._config.documents import faults
from deviceplugin._platform import open_files
from deviceplugin.errors import ConfigError

_LONGEST_TIMEOUT: Final = 60.0


def parser(
    command: str, description: str, examples: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """Return the parser of ``deviceplugin COMMAND``, without options; it does not reflow text."""
    return argparse.ArgumentParser(
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
) -> int:
    """Parse ``argv``, call ``act`` with the options, and return the exit status.

    0 after ``--help``; 2 for a wrong command line or a ``ConfigError``; 1 if ``act`` raises one of
    ``failures`` or writes to a closed pipe; 130 if it is interrupted. Errors are printed.
    """
    try:
        options = parser.parse_args(argv)
    except SystemExit as done:  # --help, or a usage error that argparse has printed
        return int(done.code or 0)
    open_files.raise_limit()
    try:
        status = act(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit, and that error must not be reported either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except ConfigError as error:
        complain(parser.prog, error)
        return USAGE
    except failures as error:
        complain(parser.prog, error)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def has_colour() -> bool:
    """Return whether to colour the output."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def duration(text: str) -> timedelta:
    """Return the duration ``text``, for a parser."""
    try:
        return cast("timedelta", values.parse(text, timedelta))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def seconds(least: str, most: str = "") -> Callable[[str], float]:
    """Return the type of an option that is a duration from ``least`` to ``most``, in seconds."""
    wrong = f"is not between {least} and {most}" if most else f"is less than {least}"
    shortest, longest = duration(least), duration(most) if most else timedelta.max

    def read(text: str) -> float:
        if not shortest <= (found := duration(text)) <= longest:
            raise argparse.ArgumentTypeError(f"{text!r} {wrong}")
        return found.total_seconds()

    return read


def check_timeout(seconds: float) -> None:
    """Raise ``ConfigError`` unless ``--timeout`` is in a reasonable range."""
    if not 0 < seconds <= _LONGEST_TIMEOUT:
        raise ConfigError(f"--timeout {seconds:g} is not above 0 and at most {_LONGEST_TIMEOUT:g}")


def check_names(kind: str, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise ``ConfigError`` for a name in ``wanted`` that is not ``known``.

    The message suggests a similar name, or ``--list``.
    """
    for name in wanted:
        if name not in known:
            near = faults.nearest(name, known)
            advice = f"did you mean {near}?" if near else "--list shows all"
            raise ConfigError(f"no {kind} {name!r}: {advice}")
