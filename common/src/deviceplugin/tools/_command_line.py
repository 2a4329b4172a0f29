"""What the commands of ``deviceplugin`` have in common: how they are read, and how they end."""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Final, cast

from deviceplugin._app.exit_status import FAILED, USAGE, complain
from deviceplugin._config import values, words
from deviceplugin.errors import ConfigError

_LONGEST_TIMEOUT: Final = 60.0


def parser(
    command: str, description: str, examples: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """Return the parser of ``deviceplugin COMMAND``, without options; texts are shown as given."""
    return argparse.ArgumentParser(
        prog=f"deviceplugin {command}",
        usage=usage,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Return what stands before ``--``, and the words after it; None where there is no ``--``."""
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
    """Return the exit status of ``act``, which is given what ``parser`` reads from ``argv``.

    0 after ``--help``; 2 for a wrong command line, as for a ``ConfigError``; 1 where
    ``act`` raises one of ``failures``, is interrupted, or prints to somebody who has seen enough.
    What went wrong is printed.
    """
    try:
        options = parser.parse_args(argv)
    except SystemExit as done:  # --help, or a usage error that argparse has told
        return int(done.code or 0)
    try:
        status = act(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python tries once more at its end, which must not be reported either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except ConfigError as error:
        complain(parser.prog, error)
        return USAGE
    except failures as error:
        complain(parser.prog, error)
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    return status


def has_colour() -> bool:
    """Return whether what is printed should be coloured."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def duration(text: str) -> timedelta:
    """Return the duration ``text``, for a parser."""
    try:
        return cast("timedelta", values.parse(text, timedelta))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def check_timeout(seconds: float) -> None:
    """Raise ``ConfigError`` unless ``--timeout`` is one that a person would wait for."""
    if not 0 < seconds <= _LONGEST_TIMEOUT:
        raise ConfigError(f"--timeout {seconds:g} is not above 0 and at most {_LONGEST_TIMEOUT:g}")


def check_names(kind: str, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise ``ConfigError`` for a name in ``wanted`` that is not ``known``, with one that is near.

    ``--list`` is where the others are.
    """
    for name in wanted:
        if name not in known:
            near = words.nearest(name, known)
            hint = f"did you mean {near}?" if near else "--list shows all"
            raise ConfigError(f"no {kind} {name!r}: {hint}")
