"""Registering by the kubelet's plugin watcher, which finds a socket and calls it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from deviceplugin._platform.file_identity import Identity
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.by_kubelet_socket import Registrant, Registrar
from deviceplugin._telemetry.metrics import Metrics

if TYPE_CHECKING:
    import grpc

_AFTER_REFUSAL: Final = 30.0
"""Seconds to wait for the kubelet to try again by itself."""
_WATCHER: Final = (0, 0, 0)
"""The identity of every kubelet: after a restart, each finds our socket again by itself."""


class Registry(Registrar):
    """The plugins_registry directory of a kubelet; used in place of `KubeletSocket`."""

    def __init__(self, directory: Path, metrics: Metrics) -> None:
        self.directory = directory
        self._metrics = metrics

    @override
    def token(self) -> str:
        """Return always the same.

        When a file disappears, the watcher undoes the registration of its resource. If the new file
        has the same name, the watcher does so before it handles the new file, and not after.
        """
        return "reg"

    @override
    def alias(self, name: str) -> None:
        """Return None: the watcher would take another name for another plugin."""

    @override
    def services(
        self, resource: str, notified: Callable[[str], None]
    ) -> "Sequence[grpc.GenericRpcHandler[Any, Any]]":
        from deviceplugin._registration.watcher_service import service  # few nodes need it

        return [service(resource, notified, self._metrics)]

    @override
    def identity(self) -> Identity:
        return _WATCHER

    @override
    def register(self, registrant: Registrant, waiter: Waiter) -> Identity:
        """Wait until the kubelet has the resource, or had; None once ``waiter`` is over.

        A stream may have ended before it is looked at here, or may never come: such a registration
        is lost, and is returned. None also some time after a refusal: a kubelet before Kubernetes
        1.36 tries again only with a new socket.
        """

        def accepted() -> bool:
            return registrant.was_watched or registrant.verdict == ""

        waiter.until(lambda: registrant.was_watched or registrant.verdict is not None)
        found = waiter.until(accepted, _AFTER_REFUSAL)
        return _WATCHER if found and not waiter.is_over() else None
