"""The simulated kubelet as tests and tools use it."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from deviceplugin import _rpc
from deviceplugin.simulator._connections import Connections
from deviceplugin.simulator._directory import sweep
from deviceplugin.simulator._manager import DeviceManager, Endpoint
from deviceplugin.simulator._registration import Registration
from deviceplugin.simulator._wire import UnixServer
from deviceplugin.v1beta1 import KUBELET_SOCKET
from deviceplugin.v1beta1 import deviceplugin_pb2 as pb

_T = TypeVar("_T")

_REGISTRATION = pb.DESCRIPTOR.services_by_name["Registration"]
_MAX_SOCKET_PATH = 107
_REGISTER_WORKERS = 64
"""A Register call may hang for as long as its plugin does, and must not block the others."""


class SimulatedKubelet:
    """A kubelet that manages devices and nothing else.

    ``with SimulatedKubelet(tmp_path) as kubelet: ...`` starts and stops it. It may be started
    again after it stopped: that is a kubelet restart. Methods may be called from any thread.
    """

    def __init__(
        self,
        root: Path,
        *,
        seed: int = 0,
        dial_timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a kubelet whose ``/var/lib/kubelet`` is ``root``.

        Args:
            root: Created when the kubelet starts. Keep it short: the path of a socket has 107
                bytes at most.
            seed: Decides every random choice.
            dial_timeout: Seconds that the kubelet gives a plugin's socket to answer.
            clock: Seconds, for the grace period of stopped plugins.
        """
        self.root = root
        self.plugin_dir = root / "device-plugins"
        self.kubelet_socket = self.plugin_dir / KUBELET_SOCKET
        self.registry_dir = root / "plugins_registry"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"
        self.seed = seed
        self._rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._dial_timeout = dial_timeout
        self._clock = clock
        self._changed = threading.Condition()
        self._registrations: Counter[str] = Counter()
        self._lists: Counter[str] = Counter()
        self._manager = DeviceManager(self._changed, clock)
        self._connections: Connections | None = None
        self._server: UnixServer | None = None

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._server is not None

    def start(self) -> None:
        """Clean the plugin directory and serve registration; plugins must register anew.

        ``OSError`` if the directory cannot be cleaned, ``RuntimeError`` if it is running.
        """
        if self.running:
            raise RuntimeError("the simulated kubelet is running already")
        length = len(os.fsencode(self.kubelet_socket))
        if length > _MAX_SOCKET_PATH:
            raise ValueError(
                f"{self.kubelet_socket}: {length} bytes, and a socket path has "
                f"{_MAX_SOCKET_PATH} at most; use a shorter root"
            )
        self.plugin_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        sweep(self.plugin_dir, self._rng)
        manager = DeviceManager(self._changed, self._clock)
        connections = Connections(
            manager, self._changed, dial_timeout=self._dial_timeout, listed=self._count_list
        )
        registration = Registration(self.plugin_dir, connections, self._count_registration)
        self._manager = manager
        self._connections = connections
        self._server = UnixServer(
            self.kubelet_socket,
            (_rpc.service(_REGISTRATION, registration),),
            scratch=self.root / ".sock",
            publish=_link,
            workers=_REGISTER_WORKERS,
        )
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Die: all streams break at once, and the socket file stays behind. Idempotent."""
        server, connections = self._server, self._connections
        if server is None or connections is None:
            return
        server.cancel()
        connections.close()
        server.stop()
        with self._changed:
            self._manager = DeviceManager(self._changed, self._clock)
            self._connections = self._server = None
            self._changed.notify_all()

    def restart(self) -> None:
        """Stop and start. To keep it down for a while, call ``stop`` and ``start``."""
        self.stop()
        self.start()

    # What it believes

    @property
    def registered(self) -> frozenset[str]:
        """The resources whose plugin is connected and watched."""
        with self._changed:
            return frozenset(
                resource
                for resource, endpoint in self._manager.endpoints.items()
                if endpoint.stopped_at is None and endpoint.client.streaming
            )

    def registration_count(self, resource: str) -> int:
        """Return how often Register was called for ``resource``, valid or not, over all starts."""
        with self._changed:
            return self._registrations[resource]

    def lists_received(self, resource: str) -> int:
        """Return how many device lists came for ``resource``, over all starts."""
        with self._changed:
            return self._lists[resource]

    def devices(self, resource: str) -> dict[str, str]:
        """Return the devices as last listed, id to health, both as they came over the wire.

        They stay when the plugin is gone, until the kubelet restarts or forgets the resource.
        """
        with self._changed:
            known = self._manager.devices.get(resource, {})
            return {id_: device.health for id_, device in known.items()}

    def capacity(self, resource: str) -> int:
        """Return how many devices there are, well or not: what the next node status will say."""
        return self.allocatable(resource) + len(self._ids(self._manager.unhealthy, resource))

    def allocatable(self, resource: str) -> int:
        """Return how many devices are well, in use or not: what the next node status will say."""
        return len(self._ids(self._manager.healthy, resource))

    def options(self, resource: str) -> pb.DevicePluginOptions:
        """Return the options that the plugin gave when it registered, or raise ``LookupError``."""
        return self._endpoint(resource).options

    def _ids(self, ids: dict[str, set[str]], resource: str) -> frozenset[str]:
        with self._changed:
            return frozenset(ids.get(resource, ()))

    def _endpoint(self, resource: str) -> Endpoint:
        with self._changed:
            try:
                return self._manager.endpoints[resource]
            except KeyError:
                raise LookupError(f"{resource} has no plugin; {self._state()}") from None

    # Waiting

    def wait(
        self, condition: Callable[[], _T], *, timeout: float = 5.0, what: str = "a condition"
    ) -> _T:
        """Wait until ``condition`` returns something true, and return that.

        It is looked at again whenever the kubelet's state changes, by whichever thread, and must
        be quick: the kubelet stands still meanwhile. ``TimeoutError`` after ``timeout`` seconds
        says ``what`` was waited for and what the kubelet believed.
        """
        with self._changed:
            result = self._changed.wait_for(condition, timeout)
            if not result:
                raise TimeoutError(f"waited {timeout:g} s for {what}; {self._state()}")
            return result

    def wait_for(
        self,
        resource: str,
        healthy: Collection[str],
        unhealthy: Collection[str] = (),
        *,
        timeout: float = 5.0,
    ) -> None:
        """Wait until ``resource`` has exactly these devices, with these healths."""
        expected = frozenset(healthy), frozenset(unhealthy)

        def matches() -> bool:
            manager = self._manager
            return resource in manager.devices and expected == (
                self._ids(manager.healthy, resource),
                self._ids(manager.unhealthy, resource),
            )

        what = f"{resource} to have {_health_text(*expected)}"
        self.wait(matches, timeout=timeout, what=what)

    def _state(self) -> str:
        manager = self._manager
        resources = sorted(manager.endpoints.keys() | manager.devices.keys())
        connected = self.registered
        lines = [
            f"{resource} ({'connected' if resource in connected else 'not connected'}) has "
            + _health_text(
                self._ids(manager.healthy, resource), self._ids(manager.unhealthy, resource)
            )
            for resource in resources
        ]
        asked = sorted(set(self._registrations) - set(resources))
        lines += [f"{resource} asked to register" for resource in asked]
        condition = "running" if self.running else "stopped"
        return f"the kubelet is {condition}, seed {self.seed}: {'; '.join(lines) or 'no plugins'}"

    # Doing to plugins

    def hang_up(self, resource: str) -> None:
        """Close the connection to the resource's plugin: its stream ends, its devices are lost.

        ``LookupError`` if the kubelet has no connection for ``resource``.
        """
        if self._connections is None or not self._connections.disconnect(resource):
            raise LookupError(f"{resource} has no connection; {self._state()}")

    def allocate(
        self, resource: str, ids: Iterable[str], *, timeout: float | None = 10.0
    ) -> pb.ContainerAllocateResponse:
        """Call Allocate for these devices and return the answer; no bookkeeping takes place.

        ``grpc.RpcError`` as the plugin raised it, ``LookupError`` without plugin.
        """
        requests = [pb.ContainerAllocateRequest(devices_ids=ids)]
        response = self._call(
            resource, "Allocate", pb.AllocateRequest(container_requests=requests), timeout
        )
        if not response.container_responses:
            raise LookupError(f"{resource} answered Allocate for no container")
        answer: pb.ContainerAllocateResponse = response.container_responses[0]
        return answer

    def prefer(
        self,
        resource: str,
        available: Iterable[str],
        required: Iterable[str],
        size: int,
        *,
        timeout: float | None = 10.0,
    ) -> list[str]:
        """Call GetPreferredAllocation and return the answer; errors as in ``allocate``."""
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        response = self._call(
            resource,
            "GetPreferredAllocation",
            pb.PreferredAllocationRequest(container_requests=[request]),
            timeout,
        )
        return [id_ for answer in response.container_responses[:1] for id_ in answer.deviceIDs]

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float | None = 30.0) -> None:
        """Call PreStartContainer for these devices; errors as in ``allocate``."""
        self._call(
            resource, "PreStartContainer", pb.PreStartContainerRequest(devices_ids=ids), timeout
        )

    def _call(self, resource: str, method: str, request: Any, timeout: float | None) -> Any:
        return self._endpoint(resource).client.call(method, request, timeout)

    # Counting

    def _count_registration(self, resource: str) -> None:
        with self._changed:
            self._registrations[resource] += 1
            self._changed.notify_all()

    def _count_list(self, resource: str) -> None:
        with self._changed:
            self._lists[resource] += 1


def _link(scratch: Path, path: Path) -> None:
    """Give the socket the name ``path``, so that watchers see it created, as by a bind."""
    path.hardlink_to(scratch)
    scratch.unlink()


def _health_text(healthy: Collection[str], unhealthy: Collection[str]) -> str:
    return f"healthy {sorted(healthy)} unhealthy {sorted(unhealthy)}"
