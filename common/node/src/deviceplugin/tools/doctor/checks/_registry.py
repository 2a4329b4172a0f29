"""The directory in which the kubelet itself finds plugins."""

from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Finding, Node, ok, warning
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._sockets import State, state_of
from deviceplugin.tools.doctor.checks import _directories
from deviceplugin.tools.doctor.checks._plugin_directory import sockets


def _check(node: Node) -> Iterator[Finding]:
    path = node.registry_dir
    if not path.exists():
        yield ok(path, "does not exist; only registration=watcher needs it")
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
            means="the kubelet never cleans this directory, and tries each of these repeatedly. A "
            "plugin or driver was killed and has not come back.",
            do="check whether its pod runs; if it was uninstalled, remove the file.",
        )
    if not found and not dead:
        yield ok(path, "is a writable directory")


CHECK: Final = Check("registry-directory", "plugins_registry, which the kubelet watches", _check)
