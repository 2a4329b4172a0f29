"""How a command ends: its exit status, and what it says then."""

import sys
from typing import Final

FAILED: Final = 1


USAGE: Final = 2


def complain(program: str, problem: object) -> None:
    """Say what is wrong, with the name of the program on each line."""
    for line in str(problem).splitlines():
        sys.stderr.write(f"{program}: {line}\n")
