"""The exit status of a command, and its error messages."""

import sys
from typing import Final

FAILED: Final = 1

USAGE: Final = 2

INTERRUPTED: Final = 130
"""As shells have it after SIGINT."""


def complain(program: str, problem: object) -> None:
    """Print ``problem`` to standard error, with the name of the program on each line."""
    for line in str(problem).splitlines():
        sys.stderr.write(f"{program}: {line}\n")
