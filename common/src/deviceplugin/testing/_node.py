"""A simulated kubelet with plugins, with methods for tests."""

import socket
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

from deviceplugin._app.host import Host
from deviceplugin._config.settings import Settings
from deviceplugin._inventory.encoding import decode_allocation
from deviceplugin.model import Allocation
from deviceplugin.plugin import Plugin
from deviceplugin.simulator import KubeletConfig, Pod, SimulatedKubelet
from deviceplugin.simulator._clock import PATIENCE

_QUICK: Final = timedelta(milliseconds=50)
_STOP_TIMEOUT: Final = 5.0
_ANSWER: Final = 15.0
"""Seconds. That is more than the limit of a hook, so that a test shows which one did not return."""
PLUGIN_POD: Final = Pod.of(socket.gethostname(), plugin={})
"""The pod of the plugin itself, as on a real node. A kubelet without any pod counts as starting."""


class Node:
    """A node for a test: one kubelet, and the plugins that run on it.

    Methods that wait do so for at most ``timeout`` seconds. Then they raise TimeoutError, with the
    devices that the kubelet has and with what keeps the plugins from advertising.
    """

    def __init__(self, simulated: SimulatedKubelet, host: Host) -> None:
        self.kubelet = simulated
        """The simulated kubelet, which has further methods."""
        self.host = host

    def wait_for(
        self,
        resource: str,
        healthy: Collection[str],
        unhealthy: Collection[str] = (),
        *,
        timeout: float = PATIENCE,
    ) -> None:
        """Wait until the kubelet has exactly these devices of ``resource``.

        If these are none, also until the plugins are ready: a resource is not registered before it
        has a device.
        """
        with self._explained():
            if not (healthy or unhealthy):
                what = f"{resource} to have no devices"
                self.kubelet.wait(lambda: self._is_without(resource), timeout=timeout, what=what)
                return
            self.kubelet.wait_for(resource, healthy, unhealthy, timeout=timeout)

    def _is_without(self, resource: str) -> bool:
        return not self.kubelet.capacity(resource) and not self.host.ready()

    def allocate(self, *ids: str, resource: str = "") -> Allocation:
        """Allocate devices as the kubelet does and return what the container would get.

        ``resource`` is needed only if there are several.

        Raises:
            grpc.RpcError: The plugin refused.
        """
        given = self.kubelet.allocate(resource or self._only(), list(ids), timeout=_ANSWER)
        return decode_allocation(given)

    def prefer(
        self, available: Sequence[str], size: int, required: Sequence[str] = (), resource: str = ""
    ) -> list[str]:
        """Return the ids that the plugin prefers for a container."""
        return self.kubelet.prefer(resource or self._only(), available, required, size)

    def pre_start(self, *ids: str, resource: str = "") -> None:
        """Call the plugin as the kubelet does before a container starts.

        Raises:
            grpc.RpcError: The plugin refused.
        """
        self.kubelet.pre_start(resource or self._only(), list(ids))

    def restart_kubelet(self) -> None:
        """Restart the kubelet. Returns as soon as it listens again."""
        self.kubelet.restart()

    def hang_up(self, resource: str = "") -> None:
        """Make the kubelet close its connection to the plugin."""
        self.kubelet.hang_up(resource or self._only())

    def _only(self) -> str:
        with self._explained():
            (resource,) = self.kubelet.wait(
                lambda: self.kubelet.registered, what="a plugin to be registered"
            )
        return resource

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Add what is wrong with the plugins to the message of a TimeoutError."""
        try:
            yield
        except TimeoutError as error:
            raise TimeoutError("; ".join([str(error), *self.host.troubles()])) from None


class Kubelet:
    """The value of the ``kubelet`` fixture."""

    def __init__(self, root: Path, config: KubeletConfig | None = None) -> None:
        self.simulated = SimulatedKubelet(root, config=config or KubeletConfig())

    def __enter__(self) -> Self:
        self.simulated.start()
        self.simulated.run(PLUGIN_POD)
        return self

    def __exit__(self, *_: object) -> None:
        self.simulated.stop()

    def settings(self) -> Settings:
        """Return settings for this kubelet, with intervals that suit tests."""
        return Settings(
            plugin_dir=self.simulated.plugin_dir,
            registry_dir=self.simulated.registry_dir,
            pod_resources_socket=self.simulated.pod_resources_socket,
            http_address="off",
            discovery_interval=_QUICK,
            poll_interval=_QUICK,
        )

    @contextmanager
    def running(self, *plugins: Plugin, **changes: object) -> Iterator[Node]:
        """Run ``plugins`` on this kubelet in the context; ``changes`` override ``settings()``.

        An error that ends the plugins early is raised at the end. If the body raises, the error is
        added to that as a note.
        """
        host = Host(plugins, replace(self.settings(), **changes))  # type: ignore[arg-type]
        errors: list[Exception] = []

        def run() -> None:
            try:
                host.run()
            except Exception as error:
                errors.append(error)

        def stop() -> None:
            host.stop()
            thread.join(_STOP_TIMEOUT)

        thread = threading.Thread(target=run, name="host", daemon=True)
        thread.start()
        try:
            yield Node(self.simulated, host)
        except BaseException as failure:
            stop()
            for error in errors:
                failure.add_note(f"the plugins had ended: {error!r}")
            raise
        stop()
        if errors:
            raise errors[0]
