"""Where the plugin finds the node's directories."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Roots:
    """Where this plugin sees the kernel's file systems. Tests use other directories."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    etc: Path = Path("/etc")
    mps: Path = Path("/mps")
    """Where mps-root of the host is mounted for this plugin."""
