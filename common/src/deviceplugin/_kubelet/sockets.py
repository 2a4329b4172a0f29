"""Telling each endpoint of the sockets that concern it, and of no other's."""

import threading
from collections.abc import Iterable
from pathlib import Path

from deviceplugin._kubelet.server import slug_of, slug_of_resource
from deviceplugin._platform.file_watcher import Callback, FileWatcher
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET


class SocketNews:
    """What comes and goes in ``directories``, for as long as ``watcher`` runs.

    Hundreds of endpoints that heard of each other's sockets would do little else.
    """

    def __init__(self, watcher: FileWatcher, directories: Iterable[Path]) -> None:
        self._lock = threading.Lock()
        self._of_resource: dict[str, Callback] = {}
        self._of_name: dict[str, Callback] = {}
        self._names: dict[Callback, str] = {}
        for path in directories:
            watcher.watch(path, self._tell)

    def listen(self, resource: str, callback: Callback) -> None:
        """Call ``callback`` with the names of sockets for ``resource`` and of the kubelet's.

        And with None for "check for yourself".
        """
        with self._lock:
            self._of_resource[slug_of_resource(resource)] = callback

    def name(self, name: str, callback: Callback) -> None:
        """Call ``callback`` with ``name`` too, and with no other that was named before."""
        with self._lock:
            self._of_name.pop(self._names.pop(callback, ""), None)
            self._of_name[name], self._names[callback] = callback, name

    def forget(self, resource: str, callback: Callback) -> None:
        """Call ``callback`` no more."""
        with self._lock:
            self._of_name.pop(self._names.pop(callback, ""), None)
            if self._of_resource.get(slug_of_resource(resource)) == callback:
                del self._of_resource[slug_of_resource(resource)]

    def _tell(self, name: str | None) -> None:
        with self._lock:
            if name in {None, KUBELET_SOCKET}:
                concerned = [*self._of_resource.values()]
            else:
                found = (self._of_name.get(name), self._of_resource.get(slug_of(name)))
                concerned = [callback for callback in dict.fromkeys(found) if callback]
        for callback in concerned:
            callback(name)
