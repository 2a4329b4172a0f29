"""The plugin watcher, which finds plugins by their sockets in plugins_registry."""

import logging
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import grpc
import inotify_simple

from deviceplugin._platform import rpc
from deviceplugin._platform.waiting import Waiter
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb
from deviceplugin_testing.simulator._errors import ConnectError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._plugin_watcher.registrars import Registrar
from deviceplugin_testing.simulator._wire import LARGEST_MESSAGE, dialled_path, wait_until_ready

log = logging.getLogger(__name__)

_REGISTRATION = pb.DESCRIPTOR.services_by_name["Registration"]
GET_INFO_TIMEOUT = 1.0
_NOTIFY_TIMEOUT = 5.0
_FIRST_BACKOFF = 0.5
_MAX_BACKOFF = 122.0

_flags = inotify_simple.flags
_EVENTS = _flags.CREATE | _flags.MOVED_TO | _flags.DELETE


class _NotRegisteredError(Exception):
    """A plugin was not registered. Another attempt follows."""


class _RefusedError(_NotRegisteredError):
    """A plugin was not registered, and knows it. Another attempt follows at the next look."""


@dataclass(slots=True)
class _Backoff:
    """The time at which a failed socket may be tried again."""

    delay: float = 0.0
    not_before: float = 0.0

    def fail(self, now: float) -> None:
        self.delay = min(self.delay * 2, _MAX_BACKOFF) or _FIRST_BACKOFF
        self.not_before = now + self.delay


@dataclass(frozen=True, slots=True)
class _Plugin:
    registrar: Registrar
    name: str
    endpoint: str


@dataclass(slots=True)
class _Socket:
    wanted: int | None = None
    """The number of the event that created the socket; None once it was deleted."""
    registered: int | None = None
    """The number of the event that led to the current registration."""
    plugin: "_Plugin | None" = None
    """What was registered last."""
    busy: bool = False
    backoff: _Backoff = field(default_factory=_Backoff)


class PluginWatcher:
    """Registers plugins that appear in plugins_registry, and unregisters those that are deleted.

    It does not notice that a plugin's stream has ended: then only a new socket helps.
    """

    def __init__(
        self, host: Host, registrars: Mapping[str, Registrar], *, dial_timeout: float
    ) -> None:
        self._host = host
        self._registrars = registrars
        self._dial_timeout = dial_timeout
        self._sockets: dict[str, _Socket] = {}
        self._events = 0
        self._inotify: inotify_simple.INotify | None = None
        self._folders: dict[int, Path] = {}
        self._waiter = Waiter(host.changed.clock)
        self._checking = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._channels: set[grpc.Channel] = set()

    @property
    def sockets(self) -> dict[str, str]:
        """The path of every socket to its resource or driver; empty until it is registered."""
        with self._host.changed:
            return {
                path: socket.plugin.name if socket.plugin and socket.registered is not None else ""
                for path, socket in self._sockets.items()
            }

    @property
    def busy(self) -> bool:
        with self._host.changed:
            return any(socket.busy for socket in self._sockets.values())

    def start(self) -> None:
        """Handle existing sockets; start periodic checks unless ``watch_interval`` is None."""
        self._host.registry_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._inotify = inotify_simple.INotify()
        self._enter(self._host.registry_dir)
        if self._host.config.watch_interval is not None:
            self._spawn(self._run, self._host.config.watch_interval)

    def stop(self) -> None:
        """Stop checking. Registrations end with the kubelet's other connections."""
        self._waiter.end()
        with self._host.changed:
            threads, channels = list(self._threads), list(self._channels)
        for channel in channels:
            channel.close()
        for thread in threads:
            thread.join()
        if self._inotify is not None:
            self._inotify.close()

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        def run() -> None:
            target(*args)
            with self._host.changed:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, name="plugin-watcher", daemon=True)
        with self._host.changed:
            self._threads.add(thread)
        thread.start()

    def _run(self, interval: float) -> None:
        for _ in self._waiter.ticks(interval):
            self.check()

    # Files

    def _enter(self, folder: Path) -> None:
        assert self._inotify is not None
        self._folders[self._inotify.add_watch(folder, _EVENTS)] = folder
        for path in sorted(folder.iterdir()):
            self._appeared(path)

    def _appeared(self, path: Path) -> None:
        if path.name.startswith("."):
            return
        try:
            mode = path.lstat().st_mode
        except OSError:
            return
        if stat.S_ISDIR(mode):
            self._enter(path)
        elif stat.S_ISSOCK(mode):
            with self._host.changed:
                self._events += 1
                self._sockets.setdefault(str(path), _Socket()).wanted = self._events

    def _deleted(self, path: Path) -> None:
        with self._host.changed:
            if socket := self._sockets.get(str(path)):
                socket.wanted = None

    def check(self) -> None:
        """Read the events of files, and start the registrations that follow from them."""
        assert self._inotify is not None
        with self._checking:
            for event in self._inotify.read(timeout=0):
                folder = self._folders.get(event.wd)
                if folder is None or not event.name:
                    continue
                if event.mask & _flags.DELETE:
                    self._deleted(folder / event.name)
                else:
                    self._appeared(folder / event.name)
            self._reconcile()

    # Plugins

    def _reconcile(self) -> None:
        now = self._host.clock()
        with self._host.changed:
            for path, socket in list(self._sockets.items()):
                if socket.busy:
                    continue
                if socket.registered is not None:
                    if socket.registered != socket.wanted:
                        self._unregister(socket)
                elif socket.wanted is None:
                    del self._sockets[path]
                elif now >= socket.backoff.not_before:
                    socket.busy = True
                    self._spawn(self._register, path, socket, socket.wanted)

    def _unregister(self, socket: _Socket) -> None:
        assert socket.plugin is not None
        socket.plugin.registrar.deregister(socket.plugin.name, socket.plugin.endpoint)
        socket.registered = socket.plugin = None

    def _register(self, path: str, socket: _Socket, event: int) -> None:
        try:
            plugin = self._introduce(path)
        except _RefusedError as error:
            log.debug("plugin refused", extra={"socket": path, "error": str(error)})
            with self._host.changed:
                socket.backoff = _Backoff()
        except _NotRegisteredError as error:
            log.debug("plugin not registered", extra={"socket": path, "error": str(error)})
            with self._host.changed:
                socket.backoff.fail(self._host.clock())
        else:
            with self._host.changed:
                socket.registered, socket.plugin = event, plugin
                socket.backoff = _Backoff()
        with self._host.changed:
            socket.busy = False
            self._host.notify()

    def _introduce(self, path: str) -> _Plugin:
        """Register the plugin at ``path``, notify it of the result, and return it."""
        channel = rpc.connect(
            dialled_path(path),
            default_authority=quote(path, safe=""),
            max_receive_message_length=LARGEST_MESSAGE,
        )
        with self._host.changed:
            self._channels.add(channel)
        try:
            if self._waiter.is_over() or not wait_until_ready(channel, self._dial_timeout):
                raise _NotRegisteredError(f"dial failed at socket {path}")
            return self._converse(rpc.calls(channel, _REGISTRATION), path)
        except (grpc.RpcError, ValueError) as error:
            raise _NotRegisteredError(str(error)) from None
        finally:
            channel.close()
            with self._host.changed:
                self._channels.discard(channel)

    def _converse(self, calls: Mapping[str, Any], path: str) -> _Plugin:
        info = calls["GetInfo"](pb.InfoRequest(), timeout=GET_INFO_TIMEOUT)
        registrar = self._registrars.get(info.type)
        if registrar is None:
            self._refuse(
                calls, f"no handler registered for plugin type: {info.type} at socket {path}"
            )
        plugin = _Plugin(registrar, info.name, info.endpoint or path)
        if complaint := registrar.complaint(info, plugin.endpoint):
            self._refuse(calls, f"plugin validation failed with err: {complaint}")
        try:
            registrar.register(info, plugin.endpoint)
        except ConnectError as error:
            self._refused(calls, error)
            return plugin
        status = pb.RegistrationStatus(plugin_registered=True)
        try:
            calls["NotifyRegistrationStatus"](status, timeout=_NOTIFY_TIMEOUT)
        except grpc.RpcError:
            if self._host.release.retries_refused_plugin:
                registrar.deregister(plugin.name, plugin.endpoint)
                raise
        return plugin

    def _refused(self, calls: Mapping[str, Any], error: ConnectError) -> None:
        """Notify the plugin that it could not be connected, and raise, so that it is tried again.

        If the plugin takes the notice, the kubelet counts that as a success: it tries again at its
        next look, without backing off. Before Kubernetes 1.36, it then counts the plugin as
        registered, although it is not.
        """
        complaint = f"plugin registration failed with err: {error}"
        try:
            self._notify_refused(calls, complaint)
        except grpc.RpcError:
            if self._host.release.retries_refused_plugin:
                raise
        if self._host.release.retries_refused_plugin:
            raise _RefusedError(complaint)

    def _refuse(self, calls: Mapping[str, Any], complaint: str) -> NoReturn:
        self._notify_refused(calls, complaint)
        raise _NotRegisteredError(complaint)

    def _notify_refused(self, calls: Mapping[str, Any], complaint: str) -> None:
        text = f"RegisterPlugin error -- {complaint}"
        status = pb.RegistrationStatus(plugin_registered=False, error=text)
        calls["NotifyRegistrationStatus"](status, timeout=_NOTIFY_TIMEOUT)
