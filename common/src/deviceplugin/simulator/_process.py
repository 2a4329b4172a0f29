"""One life of the kubelet, from its start to its death."""

import os
import stat
from pathlib import Path

from deviceplugin._platform import rpc
from deviceplugin.proto.podresources import podresources_pb2
from deviceplugin.proto.v1beta1 import deviceplugin_pb2
from deviceplugin.simulator import _checkpoint
from deviceplugin.simulator._admission import Admission, SyncLoop
from deviceplugin.simulator._allocating import Allocator
from deviceplugin.simulator._connections import Connections
from deviceplugin.simulator._host import Host
from deviceplugin.simulator._manager import DeviceManager
from deviceplugin.simulator._podresources import PodResources
from deviceplugin.simulator._registration import Registration
from deviceplugin.simulator._starting import Starter
from deviceplugin.simulator._watcher import PluginWatcher
from deviceplugin.simulator._wire import UnixServer

_REGISTRATION = deviceplugin_pb2.DESCRIPTOR.services_by_name["Registration"]
_POD_RESOURCES = podresources_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"]

_REGISTER_WORKERS = 1024
"""A Register call may hang for as long as its plugin does, and must not block the others, which
have a goroutine each in a real kubelet."""
_POD_RESOURCES_WORKERS = 4
_MAX_SOCKET_PATH = 107


class Process:
    """A running kubelet: servers, connections and all that it keeps in memory."""

    def __init__(self, host: Host, *, dial_timeout: float) -> None:
        self._host = host
        self.manager = DeviceManager(host)
        self.connections = Connections(host, self.manager, dial_timeout=dial_timeout)
        self.loop = SyncLoop(host)
        allocator = Allocator(host, self.manager)
        self.admission = Admission(host, self.manager, allocator, self.loop)
        self.starter = Starter(host, self.manager, allocator)
        self.watcher = PluginWatcher(host, self.connections, dial_timeout=dial_timeout)
        self._pod_resources = UnixServer(
            host.pod_resources_socket,
            [rpc.service(_POD_RESOURCES, PodResources(host, self.manager))],
            scratch=host.root / ".pr",
            publish=_rename,
            workers=_POD_RESOURCES_WORKERS,
        )
        self._registration = UnixServer(
            host.kubelet_socket,
            [rpc.service(_REGISTRATION, Registration(host, self.connections))],
            scratch=host.root / ".dp",
            publish=_link,
            workers=_REGISTER_WORKERS,
        )

    def start(self) -> None:
        """Start it. ``OSError`` or ``ValueError`` if it cannot start; it is dead then."""
        host = self._host
        _check(host)
        with host.changed:
            host.pokes.clear()
        try:
            for path in (host.plugin_dir, host.pod_resources_socket.parent):
                path.mkdir(parents=True, exist_ok=True)
            if all(path.name.startswith(".") for path in host.plugin_dir.iterdir()):
                _zero_resources(host)
            self.manager.restore()
            _sweep(host)
            self._pod_resources.start()
            self._registration.start()
            self.watcher.start()
        except (OSError, RuntimeError):  # gRPC raises the latter where it cannot listen
            self.die()
            raise
        self.manager.sources_ready = not self.admission.to_readmit

    def die(self) -> None:
        """Stop everything at once, leaving the socket files behind."""
        with self._host.changed:
            self.manager.alive = False
        self._registration.cancel()
        self._pod_resources.cancel()
        self.connections.close()
        self.watcher.stop()
        self._registration.stop()
        self._pod_resources.stop()


def _sweep(host: Host) -> None:
    """Delete every socket in the plugin directory, in any order.

    Links to sockets go too. Files, FIFOs, dangling links, directories and what is in them stay.
    Before Kubernetes 1.33 only the checkpoint, directories and what is in them stay.
    ``OSError`` if a socket cannot be deleted: the kubelet does not start then.
    """
    names = {path.name for path in host.plugin_dir.iterdir()} - {_checkpoint.FILE_NAME}
    for name in host.shuffled(names):
        path = host.plugin_dir / name
        goes = _is_socket if host.release.deletes_sockets_only else _is_no_directory
        if goes(path):
            path.unlink(missing_ok=True)  # its plugin may have been quicker


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _is_no_directory(path: Path) -> bool:
    try:
        return not stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _check(host: Host) -> None:
    for path in (host.kubelet_socket, host.pod_resources_socket):
        length = len(os.fsencode(path))
        if length > _MAX_SOCKET_PATH:
            raise ValueError(
                f"{path}: {length} bytes, and a socket path has {_MAX_SOCKET_PATH} at most; "
                "use a shorter root"
            )
    config = host.config
    if config.topology_policy != "none" and len(config.numa_nodes) > config.max_numa_nodes:
        raise ValueError(
            f"unsupported on machines with more than {config.max_numa_nodes} NUMA Nodes"
        )


def _zero_resources(host: Host) -> None:
    """Take an empty plugin directory for a sign that the node has been made anew."""
    with host.changed:
        for resources in (host.node.capacity, host.node.allocatable):
            resources.update(dict.fromkeys(resources, 0))


def _link(scratch: Path, path: Path) -> None:
    """Give the socket the name ``path``, so that watchers see it created, as by a bind."""
    path.hardlink_to(scratch)
    scratch.unlink()


def _rename(scratch: Path, path: Path) -> None:
    """Move the socket to ``path``, so that watchers see it moved, as the kubelet does."""
    scratch.replace(path)
