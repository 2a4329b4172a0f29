"""Which boot of the machine this is."""

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
