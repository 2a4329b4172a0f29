"""The sockets of each endpoint: news of its own and of the kubelet's, and a second, fixed name."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.server import is_socket_of, slug_of, slug_of_resource
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_watcher import Callback, FileWatcher
from deviceplugin._platform.unix_sockets import answers
from deviceplugin._registration.by_kubelet_socket import Registrar, RegistrarChoice
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET

_UNCERTAIN: Final = 600.0
"""Seconds between two sockets in which the later one may belong to the earlier registration.

A process can wait for a kubelet that does not answer, or be suspended, before it registers."""
_ABOUT_TO_LISTEN: Final = 5.0
"""Seconds in which a new socket need not answer; then its process has been killed."""


def _time_of(path: Path) -> float:
    """Return when the socket was made; 0 if it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


class SocketNews:
    """Reports sockets in ``directories`` to whom they concern: hundreds would do little else."""

    def __init__(self, watcher: FileWatcher, directories: Iterable[Path]) -> None:
        self._lock = threading.Lock()
        self._of_resource: dict[str, Callback] = {}
        self._of_name: dict[str, list[Callback]] = {}
        """Several may want one fixed name."""
        self._names: dict[Callback, Sequence[str]] = {}
        for path in directories:
            watcher.watch(path, self._notify)

    def listen(self, resource: str, callback: Callback) -> None:
        """Call ``callback`` for sockets of ``resource`` and the kubelet's; with None if unknown."""
        with self._lock:
            self._of_resource[slug_of_resource(resource)] = callback

    def name(self, callback: Callback, *names: str) -> None:
        """Call ``callback`` for ``names`` too, in place of those that were given before."""
        with self._lock:
            self._drop_names(callback)
            for name in names:
                self._of_name.setdefault(name, []).append(callback)
            self._names[callback] = names

    def _drop_names(self, callback: Callback) -> None:
        for name in self._names.pop(callback, ()):
            self._of_name[name].remove(callback)
            if not self._of_name[name]:
                del self._of_name[name]

    def forget(self, resource: str, callback: Callback) -> None:
        with self._lock:
            self._drop_names(callback)
            if self._of_resource.get(slug_of_resource(resource)) == callback:
                del self._of_resource[slug_of_resource(resource)]

    def _notify(self, name: str | None) -> None:
        with self._lock:
            if name in {None, KUBELET_SOCKET}:
                concerned = [*self._of_resource.values()]
            else:
                found = [*self._of_name.get(name, ()), self._of_resource.get(slug_of(name))]
                concerned = [callback for callback in dict.fromkeys(found) if callback]
        for callback in concerned:
            callback(name)


class OwnSockets:
    """The sockets of ``resource``. Changes of these and the kubelet's call ``changed``.

    The kubelet uses the process that registered last, and says nothing to the one before. So those
    that may have done so after this one are known by their sockets, and are asked whether they live
    as long as there are any: a killed one leaves its socket.
    """

    def __init__(
        self,
        resource: str,
        news: SocketNews,
        choice: RegistrarChoice,
        changed: Callable[[], None],
        clock: Clock = MONOTONIC,
    ) -> None:
        self._clock = clock
        self._resource = resource
        self._news = news
        self._choice = choice
        self._changed = changed
        self._now: tuple[str, ...] = ()
        self._ever: deque[str] = deque(maxlen=8)
        self._lock = threading.Lock()
        self._made = 0.0
        self._new: dict[Path, float] = {}
        """Those that have not answered yet, each with when it was seen first."""
        self._later: set[Path] = set()
        self._earlier: set[Path] = set()
        """Those whose end changes nothing, because they registered before or have ended."""

    def open(self) -> None:
        self._news.listen(self._resource, self._on_change)

    def close(self) -> None:
        self._news.forget(self._resource, self._on_change)

    def replace(self, *names: str) -> None:
        """Treat the file ``names`` as ours from now on; the first is the socket itself."""
        self._now = names
        self._ever.append(names[0])
        self._news.name(self._on_change, *names)

    def registered(self) -> None:
        """Forget the processes that have surely registered before this one, which just has."""
        directory = self._choice.current.directory
        self._made = _time_of(directory / self._now[0])
        with suppress(OSError):
            names = [path for path in directory.iterdir() if self._is_rivals(path.name)]
            times = {path: _time_of(path) for path in names}
            found = {path for path in names if times[path] >= self._made - _UNCERTAIN}
            young = {path for path in names if times[path] >= self._made - _ABOUT_TO_LISTEN}
            with self._lock:
                self._later = set(filter(answers, found))
                waited_for = young - self._later - self._earlier
                self._new = dict.fromkeys(waited_for, self._clock.now())
                self._earlier = {*names} - self._later - waited_for

    @property
    def has_rival(self) -> bool:
        """Whether another process may have registered after this one, and lived when asked."""
        return bool(self._later or self._new)

    def others(self) -> bool:
        """Ask whether another process serves the resource now, whenever it has registered."""
        for directory in {each.directory for each in self._choice.all}:
            with suppress(OSError):
                if any(self._is_rivals(one.name) and answers(one) for one in directory.iterdir()):
                    return True
        return False

    def outlived(self) -> bool:
        """Ask the others; return whether one is gone that may have registered later.

        False if another one that is left has a newer socket: then it is its turn to register again.
        """
        with self._lock:
            now = self._clock.now()
            new = {path: seen for path, seen in self._new.items() if path.name not in self._ever}
            before = self._later | {*new}
            self._later = set(filter(answers, before))
            self._new = {
                path: seen
                for path, seen in new.items()
                if path not in self._later and path.exists() and now - seen < _ABOUT_TO_LISTEN
            }
            gone = before - self._later - {*self._new}
            self._earlier |= gone  # of which there may still be news
            return bool(gone) and all(_time_of(path) <= self._made for path in self._later)

    def _on_change(self, name: str | None) -> None:
        if name in {None, KUBELET_SOCKET, *self._now}:
            self._changed()
        elif name and self._is_rivals(name):
            path = self._choice.current.directory / name
            with self._lock:  # also one that has gone already
                if path not in self._earlier:
                    self._new.setdefault(path, self._clock.now())
            self._changed()

    def _is_rivals(self, name: str) -> bool:
        return name not in self._ever and is_socket_of(self._resource, name)


class SocketAlias:
    """A symbolic link ``path`` to the socket ``target``, which is in the same directory.

    The kubelet is never given it: several plugins may want the same fixed name, and whoever dials
    one by it could reach another. So it does not matter who has it, or that it is lost.
    """

    def __init__(self, path: Path, target: str) -> None:
        self.path, self._target = path, target

    @classmethod
    def of(cls, resource: Resource, registrar: Registrar, target: str) -> Self | None:
        """Return the link that the resource's plugin wants; None if it wants none, or has none."""
        plugin = resource.plugin
        if not plugin.socket_name or plugin.resource != resource.name:
            return None
        path = registrar.alias(plugin.socket_name)
        return cls(path, target) if path is not None else None

    def claim(self) -> str:
        """Take the link, unless its owner lives; return why that is impossible, or nothing."""
        try:
            if self._is_ours():
                return ""
            if answers(self.path):
                return "another plugin that is running has this name"
            link = self.path.with_name(f".{self._target}")
            link.unlink(missing_ok=True)
            link.symlink_to(self._target)
            link.replace(self.path)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def release(self) -> None:
        """Remove the link, unless another plugin has it."""
        with suppress(OSError):
            if self._is_ours():
                self.path.unlink()

    def _is_ours(self) -> bool:
        with suppress(OSError):  # it is not there, or no link
            return str(self.path.readlink()) == self._target
        return False
