"""Which process listens on a socket, and in which pod it runs, as far as is visible."""

import os
import re
from pathlib import Path
from typing import Final

from deviceplugin.checks import Node
from deviceplugin.tools.doctor._sockets import listener_of

_POD: Final = re.compile(r"[-/]pod([0-9a-f]{8}[0-9a-f_-]{24,28})")
_STATE: Final = re.compile(r"^State:\s*T \((.*)\)", re.MULTILINE)
_LOGS: Final = "var/log/pods"


def process_behind(node: Node, socket: Path) -> int:
    """Return the process that listens on ``socket``, by its number in the node's ``/proc``.

    0 if it is not visible: it is in another PID namespace than this one.
    """
    proc = node.root / "proc/self"
    same = proc.is_symlink() and str(proc.readlink()) == str(os.getpid())
    return listener_of(socket, node.timeout) if same else 0


def described(node: Node, process: int) -> str:
    """Return the name of ``process``, its number, its pod, and whether it is stopped."""
    if not process:
        return ""
    directory = f"proc/{process}"
    parts = [node.peek(f"{directory}/comm") or "unknown", f"process {process}"]
    if found := _POD.search(node.peek(f"{directory}/cgroup")):
        parts.append(f"pod {_named(node, found[1].replace('_', '-'))}")
    if found := _STATE.search(node.peek(f"{directory}/status")):
        parts.append(found[1])
    return ", ".join(parts)


def _named(node: Node, uid: str) -> str:
    """Return namespace and name of the pod, from the directory of its logs; else its uid."""
    for path in node.matches(f"{_LOGS}/*_*_{uid}"):
        namespace, name, _ = path.name.split("_")
        return f"{namespace}/{name}"
    return uid
