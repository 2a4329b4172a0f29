"""Telling somebody at a terminal what a command waits for."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PATIENCE: Final = 1.0
"""Seconds that nobody asks about."""


@contextmanager
def waiting(program: str, what: str) -> Iterator[None]:
    """Print once that ``program`` waits for ``what``, if the context takes more than a second.

    It is for a terminal: nothing is printed elsewhere.
    """
    line = f"{program}: still waiting for {what}\n"
    timer = threading.Timer(_PATIENCE, lambda: sys.stderr.write(line))
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
