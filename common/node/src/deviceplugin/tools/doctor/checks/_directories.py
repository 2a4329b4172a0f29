"""The directories for sockets: that of the plugins, and that in which the kubelet finds them."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform.mounts import mount_of, mounts
from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin.tools.doctor._sockets import State, state_of

_MOST: Final = 256
"""Most sockets that are tried."""


def faults(node: Node, path: Path) -> Iterator[Finding]:
    """Yield a finding for each fault of ``path``, which exists."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        yield failure(
            path,
            "is not a directory",
            means="nobody can create a socket in it.",
            do="remove it and restart the kubelet, which creates the directory.",
        )
        return
    mount = mount_of(path.resolve(), mounts(node.peek("proc/self/mountinfo")))
    if not status.st_nlink or (mount and mount.is_deleted):
        yield failure(
            path,
            "has been deleted on the node since it was mounted here",
            means="a socket that is created here is in a directory that the kubelet does not see.",
            do="restart this pod, and mount /var/lib/kubelet itself if that happens often.",
        )
    elif mount and "ro" in mount.options:
        yield failure(
            path,
            f"is on a file system that is mounted read-only (at {mount.point})",
            means="a plugin cannot create its socket in it.",
            do="remove readOnly from the volume mount; on the node, find out why the disk is "
            "read-only (dmesg), and remount it.",
        )
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield failure(
            path,
            f"this process (user {os.geteuid()}) may not read and write it",
            means="a plugin that runs as this user cannot create its socket in it.",
            do="run the plugin, and this command, as root (runAsUser: 0).",
        )
    yield from _ownership(path, status)


def _ownership(path: Path, status: os.stat_result) -> Iterator[Finding]:
    if status.st_mode & stat.S_IWOTH:
        yield warning(
            path,
            f"everybody may write to it (mode {stat.S_IMODE(status.st_mode):04o})",
            means="any process on the node can pose as a device plugin.",
            do=f"chmod o-w {path}",
        )
    if status.st_uid not in {0, os.geteuid()}:
        yield warning(
            path,
            f"it belongs to user {status.st_uid}, not to root",
            means="that user can delete the sockets of plugins.",
            do=f"chown root {path}",
        )


def usable(node: Node, path: Path, missing: Finding) -> Iterator[Finding]:
    """Yield the faults of ``path``, or that it has none; ``missing`` if it does not exist."""
    if not path.exists():
        yield missing
    else:
        found = list(faults(node, path))
        yield from found or [ok(path, "is a writable directory")]


def directory(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir
    missing = failure(
        path,
        "does not exist",
        means="there is no kubelet on this machine, or its directory is not mounted here. No "
        "plugin can register.",
        do="on a node, start the kubelet, which creates the directory; in a pod, mount the "
        f"host path {node.settings.plugin_dir} at the same place.",
    )
    if node.registry_dir.is_dir() and node.settings.registration != "self":
        missing = ok(path, "does not exist; plugins can still be found in plugins_registry")
    yield from usable(node, path, missing)


def sockets_in(directory: Path) -> list[Path]:
    """Return the sockets in ``directory``, if it is there.

    The kubelet's does not count, and a link to a socket is another name of one.
    """
    if not directory.is_dir():
        return []
    found = (one for one in directory.iterdir() if one.is_socket() and not one.is_symlink())
    others = (one for one in found if one.name != KUBELET_SOCKET)
    return sorted(others, key=lambda path: natural_key(path.name))


def _dead(node: Node, directory: Path) -> list[str]:
    """Return the names of sockets without a listener."""
    tried = sockets_in(directory)[:_MOST]
    return [path.name for path in tried if state_of(path, node.timeout / 10) is State.DEAD]


def leftovers(node: Node) -> Iterator[Finding]:
    directory = node.plugin_dir
    if not directory.is_dir():
        return
    if dead := _dead(node, directory):
        yield warning(
            directory,
            f"nobody listens on {', '.join(dead)}",
            means="a plugin was killed, or crashed, and left its socket. It has no allocatable "
            "devices until it registers again; the file itself does no harm.",
            do="check whether the pod of that plugin runs (kubectl get pods -A -o wide). The next "
            "start of the kubelet removes the file, and often that of the plugin does.",
        )
    else:
        yield ok(directory, "has no socket without a listener")


def registry(node: Node) -> Iterator[Finding]:
    path = node.registry_dir
    missing = ok(path, "does not exist; only registration=watcher needs it")
    yield from usable(node, path, missing)
    if dead := _dead(node, path):
        yield warning(
            path,
            f"nobody listens on {', '.join(dead)}",
            means="the kubelet never cleans this directory, and tries each of these repeatedly. A "
            "plugin or driver was killed and has not come back.",
            do="check whether its pod runs; if it was uninstalled, remove the file.",
        )


def mode(node: Node) -> Iterator[Finding]:
    mode = node.settings.registration
    directories = {"self": node.plugin_dir, "watcher": node.registry_dir}
    here = [name for name, path in directories.items() if path.is_dir()]
    if mode == "auto" and here:
        path = directories[here[0]]
        yield ok("registration=auto", f"would be {here[0]}, because {path} exists")
    elif mode in here:
        yield ok(f"registration={mode}", f"{directories[mode]} exists")
    else:
        wanted = directories.values() if mode == "auto" else [directories[mode]]
        yield failure(
            f"registration={mode}",
            f"there is no {' and no '.join(map(str, wanted))}",
            means="a plugin waits until one is there, and its devices are not advertised.",
            do="mount the directory at the same path as on the node"
            + (f", or set registration={here[0]}, whose directory exists." if here else "."),
        )
