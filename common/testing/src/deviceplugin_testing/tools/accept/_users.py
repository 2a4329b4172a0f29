"""Which processes have device nodes open, of whichever user, and in whichever container."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from deviceplugin.kit.containers import Processes
from deviceplugin_testing.conformance._process import PROC, family

_SYS_PTRACE: Final = 19
"""The capability without which the descriptors of others cannot be read."""


class User(NamedTuple):
    """A process that has device nodes open."""

    pid: int
    name: str
    """As the process calls itself: no proof of what it is."""
    nodes: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name} (PID {self.pid})"


def sees_all() -> bool:
    """Return whether ``users`` sees the processes of all containers, and what they have open."""
    rights = int((PROC / "self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    sees_others = Processes(PROC, Path("/var/log/containers")).of_machine()
    return sees_others and bool(rights >> _SYS_PTRACE & 1)


def users(nodes: Iterable[str]) -> list[User]:
    """Return who has any of the device nodes ``nodes`` open, but for what this process started.

    Nodes are compared by their numbers: a container can have them under any name.
    """
    numbers = {Path(node).stat().st_rdev: node for node in nodes if Path(node).exists()}
    own = {*map(str, family(os.getpid()))}
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and entry.name not in own:
            with suppress(OSError):  # it has ended
                if held := frozenset(_held(entry, numbers)):
                    name = (entry / "comm").read_text(errors="replace").strip()
                    found.append(User(int(entry.name), name, held))
    return sorted(found)


def _held(process: Path, numbers: Mapping[int, str]) -> Iterable[str]:
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):
            if (node := numbers.get(descriptor.stat().st_rdev)) is not None:
                yield node
