"""The MPS control daemons of a node, in two files below mps-root.

The plugin writes which it wants, and ``gpu-mps-daemon`` which there are, each with its limits and
with why it cannot be used. So both restart by themselves. No container gets either file.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import files
from deviceplugin.kit.configuration import (
    finished,
    integer,
    list_of,
    needed,
    of_file,
    record,
    text,
)

WANTED: Final = "wanted.json"
RUNNING: Final = "running.json"
_VERSION: Final = 1
_MOST: Final = 1024
"""Daemons, and devices of one."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A GPU or MIG device of a daemon."""

    uuid: str
    memory: int = 0
    """MiB that one client may use; 0 for no limit."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A control daemon: what it serves, and the limits of each client."""

    name: str
    """Its directory below mps-root: a resource, or a resource and the UUID of a device."""
    devices: tuple[Limited, ...]
    """In the order in which CUDA counts them there."""
    threads: int = 0
    """Percent of the threads of a device that one client may use; 0 for no limit."""
    problem: str = ""
    """Why it cannot be used now; empty for one that is only wanted."""


_PART: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_NAME: Final = text(rf"^{_PART}(?:/{_PART}){{1,2}}$", "a resource, or a resource and a UUID")
_UUID: Final = text(r"^(?:GPU|MIG)-[-/A-Za-z0-9]{1,90}$", "the UUID of a GPU or MIG device")
_LIMITED: Final = record(Limited, {"uuid": needed(_UUID), "memory": integer()})
_DAEMON: Final = record(
    Daemon,
    {
        "name": needed(_NAME),
        "devices": needed(list_of(_LIMITED, 1)),
        "threads": integer(0, 100),
        "problem": text(),
    },
)


def _checked(version: int, daemons: tuple[Daemon, ...]) -> tuple[Daemon, ...]:
    if version != _VERSION:
        raise ValueError(f"has version {version}: run plugin and gpu-mps-daemon of one release")
    if len({one.name for one in daemons}) < len(daemons):
        raise ValueError("names a daemon twice")
    if max((len(daemons), *(len(one.devices) for one in daemons))) > _MOST:
        raise ValueError(f"has more than {_MOST} daemons, or devices of one")
    return daemons


_FILE: Final = record(_checked, {"version": needed(integer()), "daemons": needed(list_of(_DAEMON))})


def read(path: Path) -> tuple[Daemon, ...] | None:
    """Return what a file says; None if there is none. DiscoveryError if it cannot be used."""
    if not path.exists():
        return None
    try:
        return finished(of_file(path), _FILE)
    except dp.ConfigError as error:
        raise dp.DiscoveryError(str(error)) from error


def write(path: Path, daemons: Iterable[Daemon]) -> None:
    """Write a file, unless it says the same already. OSError if it cannot be written."""
    listed = [asdict(one) for one in sorted(daemons, key=lambda one: one.name)]
    text = json.dumps({"version": _VERSION, "daemons": listed}, indent=1) + "\n"
    files.write(path, text, durable=False)  # below /run: nothing of it outlives a boot
