"""One process of the kubelet, from its start to its end."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from deviceplugin._platform import rpc
from deviceplugin._platform.checkpoint import FILE_NAME
from deviceplugin._platform.waiting import Waiter
from deviceplugin.proto.dra import PLUGIN_TYPE
from deviceplugin.proto.podresources import podresources_pb2
from deviceplugin.proto.v1beta1 import deviceplugin_pb2
from deviceplugin_testing.simulator._admission import Admission, SyncLoop
from deviceplugin_testing.simulator._containers.pod_workers import PodWorkers
from deviceplugin_testing.simulator._containers.runtime import Runtime, Starter
from deviceplugin_testing.simulator._device_manager.allocating import Allocator
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._device_manager.registration import Connections, Registration
from deviceplugin_testing.simulator._dra.manager import DraManager
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._plugin_watcher.registrars import DevicePlugins, Registrar
from deviceplugin_testing.simulator._plugin_watcher.watcher import PluginWatcher
from deviceplugin_testing.simulator._podresources import PodResources
from deviceplugin_testing.simulator._wire import UnixServer

_REGISTRATION = deviceplugin_pb2.DESCRIPTOR.services_by_name["Registration"]
_POD_RESOURCES = podresources_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"]

_REGISTER_WORKERS = 1024
"""A Register call hangs as long as its plugin hangs, and must not block the others. In a real
kubelet, each has its own goroutine."""
_POD_RESOURCES_WORKERS = 4
_MAX_SOCKET_PATH = 107


class Process:
    """A running kubelet: its servers, connections and state in memory."""

    def __init__(self, host: Host, sync: Callable[[], None], *, dial_timeout: float) -> None:
        """Make one that is not started. It calls ``sync`` every ``sync_interval`` seconds."""
        self._host = host
        self._sync = sync
        self.manager = DeviceManager(host)
        self.connections = Connections(host, self.manager, dial_timeout=dial_timeout)
        self.loop = SyncLoop(host)
        allocator = Allocator(host, self.manager)
        self.admission = Admission(host, self.manager, allocator, self.loop)
        self.starter = Starter(host, self.manager, allocator)
        self.dra = DraManager(host, self.manager)
        self.workers = PodWorkers(host, self.manager, self.dra, self.starter, Runtime(host))
        takers: dict[str, Registrar] = {"DevicePlugin": DevicePlugins(self.connections)}
        takers |= {PLUGIN_TYPE: self.dra.drivers} if host.config.has_dra else {}
        self.watcher = PluginWatcher(host, takers, dial_timeout=dial_timeout)
        self._waiter = Waiter(host.changed.clock)
        self._syncing = threading.Thread(target=self._run, name="sync", daemon=True)
        self._pod_resources = UnixServer(
            host.pod_resources_socket,
            [rpc.service(_POD_RESOURCES, PodResources(host, self.manager, self.dra.containers))],
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
        """Start it; raise ``OSError`` or ``ValueError`` if it cannot start, and has ended."""
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
            self.dra.start()
            self._pod_resources.start()
            self._registration.start()
            self.watcher.start()
            self._syncing.start()
        except (OSError, RuntimeError, ValueError):  # gRPC raises RuntimeError if it cannot listen
            self.die()
            raise
        self.manager.sources_ready = not self.admission.to_readmit

    def sync(self) -> None:
        self.dra.run()
        self.workers.run()

    def _run(self) -> None:
        interval = self._host.config.sync_interval
        if interval is not None:
            for _ in self._waiter.ticks(interval):
                self._sync()

    def die(self) -> None:
        """Stop everything at once, and leave the socket files behind."""
        with self._host.changed:
            self.manager.alive = False
        self._waiter.end()
        self._registration.cancel()
        self._pod_resources.cancel()
        self.connections.close()
        self.watcher.stop()
        self.dra.stop()
        self._registration.stop()
        self._pod_resources.stop()
        if self._syncing.ident and self._syncing is not threading.current_thread():
            self._syncing.join()


def _sweep(host: Host) -> None:
    """Delete every socket in the plugin directory, in any order.

    Links to sockets are deleted too. Files, FIFOs, broken links and directories with their content
    stay. Before Kubernetes 1.33, only the checkpoint and directories with their content stay.

    Raises:
        OSError: A socket cannot be deleted. Then the kubelet does not start.
    """
    names = {path.name for path in host.plugin_dir.iterdir()} - {FILE_NAME}
    for name in host.shuffled(names):
        path = host.plugin_dir / name
        if _is_swept(path, sockets_only=host.release.deletes_sockets_only):
            path.unlink(missing_ok=True)  # its plugin may have deleted it first


def _is_swept(path: Path, *, sockets_only: bool) -> bool:
    try:
        mode = path.stat().st_mode if sockets_only else path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISSOCK(mode) if sockets_only else not stat.S_ISDIR(mode)


def _check(host: Host) -> None:
    for path in (host.kubelet_socket, host.pod_resources_socket):
        length = len(os.fsencode(path))
        if length > _MAX_SOCKET_PATH:
            raise ValueError(
                f"{path}: {length} bytes, but a socket path has {_MAX_SOCKET_PATH} at most; "
                "use a shorter root"
            )
    config = host.config
    if config.topology_policy != "none" and len(config.numa_nodes) > config.max_numa_nodes:
        raise ValueError(
            f"unsupported on machines with more than {config.max_numa_nodes} NUMA Nodes"
        )


def _zero_resources(host: Host) -> None:
    """Set all resources to 0: an empty plugin directory means that the node was recreated."""
    with host.changed:
        for resources in (host.node.capacity, host.node.allocatable):
            resources.update(dict.fromkeys(resources, 0))


def _link(scratch: Path, path: Path) -> None:
    """Link the socket to ``path``, so that watchers see it created, as by a bind."""
    path.hardlink_to(scratch)
    scratch.unlink()


def _rename(scratch: Path, path: Path) -> None:
    """Move the socket to ``path``, so that watchers see it moved, as by the kubelet."""
    scratch.replace(path)
