"""The directory in which the kubelet finds plugins by itself."""

from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Finding, Node, ok, warning
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._sockets import State, state_of
from deviceplugin.tools.doctor.checks import _directories
from deviceplugin.tools.doctor.checks._plugin_directory import sockets


def _look(node: Node) -> Iterator[Finding]:
    path = node.registry_dir
    if not path.exists():
        yield ok(path, "does not exist; needed for registration=watcher only")
        return
    found = list(_directories.faults(node, path))
    yield from found
    if not path.is_dir():
        return
    dead = [p.name for p in sockets(path) if state_of(p, node.timeout / 10) is State.DEAD]
    if dead:
        yield warning(
            path,
            f"nobody listens on {', '.join(dead)}",
            means="the kubelet never clears this directory, and tries each of these again and "
            "again. A plugin or driver was killed and has not come back.",
            do="see whether its pod runs; if it was uninstalled, remove the file.",
        )
    if not found and not dead:
        yield ok(path, "is a directory that can be written to")


CHECK: Final = Check("registry-directory", "plugins_registry, which the kubelet watches", _look)
