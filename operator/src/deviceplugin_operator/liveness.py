"""A file that says whether the operator works: a port could be held by whoever reaches it.

``python -m deviceplugin_operator.liveness FILE`` is the probe. It exits with 1 and says why if the
operator has a problem, or has not written the file lately. It imports nothing but this.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

EVERY: Final = 10.0
"""Seconds after which the operator writes the file again."""
STALE: Final = 60.0
"""Seconds after which the probe does not believe it any more."""
_BEGINS: Final = "it does not watch yet"


class Sign:
    """The file of an operator that has begun."""

    def __init__(self, file: Path, problem: Callable[[], str]) -> None:
        """Begin; ``problem`` returns why the process should be restarted, or an empty string."""
        self._file = file
        self._problem = problem
        file.write_text(_BEGINS, encoding="utf-8")

    def renew(self) -> None:
        """Write the file. What cannot be written, the probe will miss."""
        with suppress(OSError):
            self._file.write_text(self._problem(), encoding="utf-8")


def fault(file: Path) -> str:
    """Return why the operator that writes ``file`` should be restarted, or an empty string."""
    try:
        age = time.time() - file.stat().st_mtime
        said = file.read_text(encoding="utf-8")
    except OSError as error:
        return f"{file}: {error.strerror}"
    return said or (f"{file}: was written {age:.0f} s ago" if age > STALE else "")


def main(words: Sequence[str]) -> int:
    """Probe the file that the command line names."""
    if len(words) != 1:
        sys.stderr.write("one file belongs here\n")
        return 2
    problem = fault(Path(words[0]))
    sys.stdout.write(f"{problem or 'ok'}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
