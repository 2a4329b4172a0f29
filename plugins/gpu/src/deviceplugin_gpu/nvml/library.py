"""Finding and loading the driver's library, ``libnvidia-ml.so.1``."""

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.kit.health import absence

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
"""Where distributions install it, below the root of the driver."""


MISSING: Final = "no such file"
UPGRADED: Final = (
    "the driver was upgraded and the old one is still loaded: reboot, or reload its modules"
)
"""What it means that the libraries on the disk are newer than the module in the kernel."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A place that was searched for the library, and the outcome."""

    place: str
    outcome: str
    """Empty if it was loaded."""


def candidates(root: Path) -> list[Path]:
    """Return the places below the driver's ``root`` to search, the likeliest first."""
    return [root / directory / SONAME for directory in DIRECTORIES]


class Library:
    """The library that this process has loaded.

    It is loaded from below ``root`` if it is there, else from where the dynamic linker finds it. It
    is loaded by its full path and globally (``RTLD_GLOBAL``), so that opening it by its bare name
    returns the same library.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.attempts: list[Attempt] = []
        """The attempts of the last ``load``."""
        self.path = ""
        """The loaded file, links resolved, or its bare name if the linker chose; empty if none."""

    def load(self) -> ctypes.CDLL | None:
        """Return the library to use; None if there is none, or if it is loaded already.

        If the file has changed, such as by an upgrade of the driver, it is loaded beside the old
        one.
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
            if not absence(path):
                yield os.path.realpath(path)
            else:
                self.attempts.append(Attempt(str(path), MISSING))
        yield SONAME
