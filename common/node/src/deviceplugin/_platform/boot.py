"""Which boot of the machine this is."""

import time
from pathlib import Path
from typing import Final

_PATH: Final = Path("/proc/sys/kernel/random/boot_id")
"""The machine's, in every container."""


def boot_id(path: Path = _PATH) -> str:
    """Return the kernel's id of this boot, which a node's status has too; empty if unknown."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def is_of_this_boot(moment_ns: int) -> bool:
    """Return whether ``moment_ns``, of the system's clock, is since the machine started.

    The clock may have been wrong, and later than now is never.
    """
    now = time.time_ns()
    return now - time.clock_gettime_ns(time.CLOCK_BOOTTIME) <= moment_ns <= now
