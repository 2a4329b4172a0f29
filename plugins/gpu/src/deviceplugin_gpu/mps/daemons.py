"""The MPS control daemons of a node, in two files below mps-root.

The plugin writes which it wants, and ``gpu-mps-daemon`` which there are, each with its limits and
with why it cannot be used. So both restart by themselves. No container gets either file.
"""

import fcntl
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import configuration as kind
from deviceplugin.kit import files

WANTED: Final = "wanted.json"
RUNNING: Final = "running.json"
LOCK: Final = "gpu-mps-daemon.lock"
"""Is locked while ``gpu-mps-daemon`` runs. One that was killed leaves ``RUNNING`` behind."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Daemon:
    """A control daemon: what it serves, and the limits of each client."""

    devices: Mapping[str, int]
    """MiB that one client may use of a GPU or MIG device, by UUID; 0 for no limit."""
    threads: int = 0
    """Percent of the threads of a device that one client may use; 0 for no limit."""
    problem: str = ""
    """Why it cannot be used now; empty for one that is only wanted."""


Daemons = Mapping[str, Daemon]
"""By their directories below mps-root: a resource, or a resource and the UUID of a device."""


def _like(pattern: str, what: str) -> Callable[[str], str]:
    return lambda name: "" if kind.matches(name, f"^{pattern}$") else f"is not {what}"


_PART: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_NAME: Final = _like(rf"{_PART}(?:/{_PART}){{1,2}}", "a resource, or a resource and a UUID")
_UUID: Final = _like(r"(?:GPU|MIG)-[-/A-Za-z0-9]{1,90}", "the UUID of a GPU or MIG device")
_DEVICES: Final = kind.mapping_of(kind.integer(), _UUID, 1)
_DAEMON: Final = kind.record(
    Daemon,
    {"devices": kind.needed(_DEVICES), "threads": kind.integer(0, 100), "problem": kind.text()},
)


def _of_version(version: int, daemons: Daemons) -> Daemons:
    if version != _VERSION:
        raise ValueError(f"has version {version}: run plugin and gpu-mps-daemon of one release")
    return daemons


_FILE: Final = kind.record(
    _of_version,
    {
        "version": kind.needed(kind.integer()),
        "daemons": kind.needed(kind.mapping_of(_DAEMON, _NAME)),
    },
)


def read(path: Path) -> Daemons | None:
    """Return what a file says; None if there is none. DiscoveryError if it cannot be used."""
    try:
        return kind.read(path, _FILE) if path.exists() else None
    except dp.ConfigError as error:
        raise dp.DiscoveryError(str(error)) from error


def running(root: Path) -> Daemons | None:
    """Return the daemons of ``gpu-mps-daemon``; None if that does not run, or DiscoveryError."""
    try:
        with (root / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read(root / RUNNING) or {}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise dp.DiscoveryError(f"{root / LOCK}: {error.strerror}") from error
    return None


def write(path: Path, daemons: Daemons) -> None:
    """Write a file, unless it says the same already. OSError if it cannot be written."""
    listed = {name: asdict(daemons[name]) for name in sorted(daemons)}
    text = json.dumps({"version": _VERSION, "daemons": listed}, indent=1) + "\n"
    files.write(path, text, durable=False)  # below /run: nothing of it outlives a boot
