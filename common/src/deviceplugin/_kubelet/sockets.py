"""Notifying each endpoint of changes of its own sockets and the kubelet's, and of no others."""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from deviceplugin._kubelet.server import slug_of, slug_of_resource
from deviceplugin._platform.file_watcher import Callback, FileWatcher
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET


class SocketNews:
    """Reports sockets that appear and disappear in ``directories``, while ``watcher`` runs.

    If hundreds of endpoints were notified of each other's sockets, they would do little else.
    """

    def __init__(self, watcher: FileWatcher, directories: Iterable[Path]) -> None:
        self._lock = threading.Lock()
        self._of_resource: dict[str, Callback] = {}
        self._of_name: dict[str, list[Callback]] = {}
        """Several may want one fixed name."""
        self._names: dict[Callback, Sequence[str]] = {}
        for path in directories:
            watcher.watch(path, self._notify)

    def listen(self, resource: str, callback: Callback) -> None:
        """Call ``callback`` with the name of a socket of ``resource`` or of the kubelet's socket.

        It is called with None if the name is unknown, for example after lost events.
        """
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
        """Stop calling ``callback``."""
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
