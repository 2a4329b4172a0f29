"""The directory with the sockets of the kubelet and the plugins."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from deviceplugin._inventory.validation import natural_key
from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._sockets import State, state_of
from deviceplugin.tools.doctor.checks import _directories

_MOST: Final = 64
"""Most sockets that are tried."""


def _check(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir
    if not path.exists():
        if node.registry_dir.is_dir():
            yield ok(path, "does not exist; plugins can still be found in plugins_registry")
            return
        yield failure(
            path,
            "does not exist",
            means="there is no kubelet on this machine, or its directory is not mounted here. No "
            "plugin can register.",
            do="on a node, start the kubelet, which creates the directory; in a pod, mount the "
            f"host path {node.settings.plugin_dir} at the same place.",
        )
        return
    found = list(_directories.faults(node, path))
    yield from found or [ok(path, "is a writable directory")]


def sockets(directory: Path) -> list[Path]:
    """Return the sockets in ``directory`` other than the kubelet's, in natural order.

    A link to a socket is another name of one.
    """
    found = (
        path
        for path in directory.iterdir()
        if path.is_socket() and not path.is_symlink() and path.name != KUBELET_SOCKET
    )
    return list(islice(sorted(found, key=lambda path: natural_key(path.name)), _MOST))


def _leftovers(node: Node) -> Iterator[Finding]:
    directory = node.plugin_dir
    if not directory.is_dir():
        return
    found = sockets(directory)
    dead = [path.name for path in found if state_of(path, node.timeout / 10) is State.DEAD]
    if dead:
        yield warning(
            directory,
            f"nobody listens on {', '.join(dead)}",
            means="a plugin was killed, or crashed, and left its socket. It has no allocatable "
            "devices until it registers again; the file itself does no harm.",
            do="check whether the pod of that plugin runs (kubectl get pods -A -o wide). The next "
            "start of the kubelet removes the file, and often that of the plugin does.",
        )
    yield ok(directory, f"somebody listens on {len(found) - len(dead)} sockets of plugins")


DIRECTORY: Final = Check("plugin-directory", "the kubelet's plugin directory", _check)
LEFTOVERS: Final = Check(
    "leftover-sockets", "sockets in that directory without a listener", _leftovers
)
