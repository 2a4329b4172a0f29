"""Which processes have device nodes open, of whichever user, and in whichever container."""

import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ALL: Final = "pid:[4026531836]"
"""The kernel's number of the first PID namespace, whose /proc has the processes of all others."""
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class User:
    """A process that has device nodes open."""

    pid: int
    name: str
    nodes: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name} (PID {self.pid})"


def sees_all(proc: Path = Path("/proc")) -> bool:
    """Return whether ``users`` sees the processes of all containers."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _ALL
    except OSError:
        return False


def users(nodes: Iterable[str], own: Collection[int], proc: Path = Path("/proc")) -> list[User]:
    """Return who has any of the device nodes ``nodes`` open, but for the processes ``own``.

    Nodes are compared by their numbers: a container can have them under any name.
    """
    numbers: dict[int, str] = {}
    for node in nodes:
        with suppress(OSError):
            numbers[Path(node).stat().st_rdev] = node
    found = []
    for entry in proc.iterdir():
        if entry.name.isdecimal() and int(entry.name) not in own:
            held = _held(entry, numbers)
            if held:
                found.append(User(int(entry.name), _name(entry), held))
    return sorted(found, key=lambda one: one.pid)[:_MOST]


def _held(process: Path, numbers: Mapping[int, str]) -> frozenset[str]:
    held = set()
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                status = descriptor.stat()
                if stat.S_ISCHR(status.st_mode) and status.st_rdev in numbers:
                    held.add(numbers[status.st_rdev])
    return frozenset(held)


def _name(process: Path) -> str:
    try:
        text = (process / "comm").read_text(errors="replace")
    except OSError:
        return "?"
    return "".join(one if one.isprintable() else "?" for one in text.strip())[:16]
