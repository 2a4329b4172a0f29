"""Finding the driver's library, ``libnvidia-ml.so.1``, and getting it into the process."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SONAME: Final = "libnvidia-ml.so.1"
DIRECTORIES: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",  # Debian, whose links lead over /etc
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib/nvidia/tesla",  # Bottlerocket
    "usr/local/glibc/usr/lib",  # Talos
)
"""Where distributions keep it, below the root of the driver."""


MISSING: Final = "no such file"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A place where the library was looked for, and what came of it."""

    place: str
    outcome: str
    """Empty if it was loaded."""


def candidates(root: Path) -> list[Path]:
    """Return where the library is looked for below the driver's ``root``, the likeliest first."""
    return [root / directory / SONAME for directory in DIRECTORIES]


class Library:
    """The library as this process has it.

    Loaded once, below ``root`` if it is there, else wherever the dynamic linker finds it. Loaded
    under its full path and for everyone (``RTLD_GLOBAL``), so that whoever opens it by its bare
    name gets the same one.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.attempts: list[Attempt] = []
        """Of the last ``load``."""
        self.path = ""
        """What was loaded, links resolved; its bare name where the linker chose; empty if none."""

    def load(self) -> ctypes.CDLL | None:
        """Return the library to use, None if there is none or it is the one loaded already.

        Another file than before, such as after an upgrade of the driver, is loaded beside it.
        """
        self.attempts = []
        for place in self._places():
            if place == self.path:
                return None
            try:
                library = ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                self.attempts.append(Attempt(place, str(error)))
                continue
            self.attempts.append(Attempt(place, ""))
            self.path = place
            return library
        return None

    def _places(self) -> Iterator[str]:
        for path in candidates(self.root):
            if path.exists():
                yield str(path.resolve())
            else:
                self.attempts.append(Attempt(str(path), MISSING))
        yield SONAME
