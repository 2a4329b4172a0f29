"""Inspecting the kubelet, and waiting for conditions."""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._clock import PATIENCE
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._device_manager.plugin_client import PluginClient
from deviceplugin_testing.simulator._errors import KubeletStopped
from deviceplugin_testing.simulator._host.claim_source import GivenClaims
from deviceplugin_testing.simulator._host.config import KubeletConfig
from deviceplugin_testing.simulator._host.host import Host, Metrics, NodeStatus, Observer
from deviceplugin_testing.simulator._host.release import Behaviour
from deviceplugin_testing.simulator._kubelet.dra_view import DraView
from deviceplugin_testing.simulator._kubelet.process import Process
from deviceplugin_testing.simulator._pods.pod import Pod, PodState

_T = TypeVar("_T")

_POLL: Final = 0.05
"""Seconds between checks of a condition while the kubelet's state does not change."""
_MANY: Final = 20
"""Most ids in a message."""


class KubeletView:
    """The state of a simulated kubelet. Only ``SimulatedKubelet`` derives from it."""

    def __init__(
        self,
        root: Path,
        *,
        seed: int = 0,
        dial_timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        behaviour: Behaviour | None = None,
        config: KubeletConfig | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Make a kubelet that uses ``root`` as ``/var/lib/kubelet``. It is not started yet.

        Args:
            root: The directory, which is created when the kubelet starts. Keep it short: the path
                of a socket has 107 bytes at most.
            seed: The seed of every random choice.
            dial_timeout: Seconds that the kubelet waits for a plugin's socket to answer.
            clock: Returns the seconds for grace periods and back-off.
            behaviour: The defects to simulate; by default all of ``config.version``.
            config: The kubelet's version and configuration, and NUMA nodes.
            observer: Is called for registrations, lists and container starts.
        """
        config = config or KubeletConfig()
        self.claims = GivenClaims()
        """The claims that a test gives, unless the configuration names a cluster."""
        self._host = Host(
            root,
            seed=seed,
            clock=clock,
            behaviour=behaviour or Behaviour.of(config.release),
            config=config,
            observer=observer or Observer(),
            cluster=config.cluster or self.claims,
        )
        self.clock = clock
        self._dial_timeout = dial_timeout
        self._process: Process | None = None
        self.root = root
        self.plugin_dir = self._host.plugin_dir
        self.kubelet_socket = self._host.kubelet_socket
        self.registry_dir = self._host.registry_dir
        self.cdi_dirs = self._host.cdi_dirs
        self.pod_resources_socket = self._host.pod_resources_socket
        self.seed = seed

    @property
    def running(self) -> bool:
        """Whether it has been started, and has neither stopped nor crashed since."""
        return self._process is not None

    @property
    def metrics(self) -> Metrics:
        """The kubelet's metrics."""
        return self._host.metrics

    @property
    def node(self) -> NodeStatus:
        """The node object, as of the last node status update."""
        return self._host.node

    @property
    def crashes(self) -> tuple[str, ...]:
        """The reason of each crash."""
        return tuple(self._host.crashes)

    @property
    def dra(self) -> DraView:
        """The drivers and claims of the running kubelet."""
        return DraView(self._host, self._process)

    # Plugins

    @property
    def registered(self) -> frozenset[str]:
        """The resources whose plugin is connected and watched."""
        with self._host.changed:
            return frozenset(
                resource
                for resource, endpoint in self._manager.endpoints.items()
                if endpoint.client and endpoint.client.streaming and not endpoint.stopped
            )

    def socket_of(self, resource: str) -> Path:
        """Return the socket of the resource's plugin; raise ``LookupError`` if it has none."""
        return Path(self._client(resource).path)

    def _client(self, resource: str) -> PluginClient:
        with self._host.changed:
            endpoint = self._manager.endpoints.get(resource)
            if endpoint is None or endpoint.client is None:
                raise LookupError(f"{resource} has no plugin; {self._state()}")
            return endpoint.client

    @property
    def resources(self) -> frozenset[str]:
        """All resources that the kubelet knows, even if only from its checkpoint."""
        with self._host.changed:
            return frozenset(self._manager.endpoints.keys() | self._manager.healthy.keys())

    @property
    def watched_sockets(self) -> dict[str, str]:
        """The sockets in plugins_registry: path to resource or driver; empty until registered."""
        with self._host.changed:
            return self._process.watcher.sockets if self._process else {}

    def registration_count(self, resource: str) -> int:
        """Return how often Register was called for ``resource``, valid or not, over all starts."""
        with self._host.changed:
            return self._host.metrics.device_plugin_registration_total[resource]

    def lists_received(self, resource: str) -> int:
        """Return how many device lists were received for ``resource``, over all starts."""
        with self._host.changed:
            return self._host.metrics.lists[resource]

    def devices(self, resource: str) -> dict[str, str]:
        """Return the devices of the last list, id to health, unchanged from the wire.

        They stay until the kubelet restarts, even if the plugin is gone and its resource is
        forgotten.
        """
        with self._host.changed:
            known = self._manager.devices.get(resource, {})
            return {id_: device.health for id_, device in known.items()}

    def healthy(self, resource: str) -> frozenset[str]:
        """Return the ids of the devices that pods may get."""
        with self._host.changed:
            return frozenset(self._manager.healthy.get(resource, ()))

    def unhealthy(self, resource: str) -> frozenset[str]:
        """Return the ids of the devices that pods may not get, also because the plugin is gone."""
        with self._host.changed:
            return frozenset(self._manager.unhealthy.get(resource, ()))

    def in_use(self, resource: str) -> frozenset[str]:
        """Return the ids that the kubelet will not allocate, whether or not a pod has them."""
        with self._host.changed:
            return frozenset(self._manager.allocated.get(resource, ()))

    def capacity(self, resource: str) -> int:
        """Return the number of devices, healthy or not, for the next node status."""
        return len(self.healthy(resource)) + len(self.unhealthy(resource))

    def allocatable(self, resource: str) -> int:
        """Return the number of healthy devices, in use or not, for the next node status."""
        return len(self.healthy(resource))

    def options(self, resource: str) -> pb.DevicePluginOptions:
        """Return the options of the registered plugin; raise ``LookupError`` if there is none."""
        with self._host.changed:
            endpoint = self._manager.endpoints.get(resource)
            if endpoint is None or endpoint.options is None:
                raise LookupError(f"{resource} has no plugin; {self._state()}")
            return endpoint.options

    # Pods

    @property
    def pods(self) -> list[PodState]:
        """All pods in the API server, in the order of their creation."""
        with self._host.changed:
            return list(self._host.pods.values())

    def pod(self, pod: Pod) -> PodState:
        """Return the pod in the API server; raise ``LookupError`` if there is none."""
        with self._host.changed:
            return self._host.pods[pod.uid]

    def held(self, pod: Pod) -> dict[str, dict[str, frozenset[str]]]:
        """Return the devices of the pod in the kubelet's records: container to resource to ids."""
        return self._live().admission.devices(pod)

    def device_health(self, pod: Pod) -> dict[str, dict[str, dict[str, str]]]:
        """Return the device health in the pod's status: container to resource to id to health.

        It has no init containers and no sidecars. Before Kubernetes 1.36 it is empty.
        """
        manager = self._live().manager
        if not self._host.release.shows_device_health:
            return {}
        names = [container.name for container in pod.containers]
        return {name: manager.health(pod.uid, name) for name in names}

    def healthz(self) -> list[str]:
        """Return the names of failing health checks; an empty list if the kubelet is healthy."""
        process = self._live()
        return ["syncloop"] if process.loop.stalled else []

    @property
    def busy_with(self) -> str:
        """The operation that everything else waits for; empty if there is none."""
        with self._host.changed:
            return self._process.loop.busy_with if self._process else ""

    @property
    def _manager(self) -> DeviceManager:
        """The device manager; an empty one while the kubelet is not running."""
        return self._process.manager if self._process else DeviceManager(self._host)

    def _live(self) -> Process:
        if self._process is None:
            raise KubeletStopped("the kubelet is not running")
        return self._process

    # Waiting

    def wait(
        self, condition: Callable[[], _T], *, timeout: float = PATIENCE, what: str = "a condition"
    ) -> _T:
        """Wait until ``condition()`` is true, and return its value.

        It is checked whenever the kubelet's state changes, and 20 times a second for conditions
        outside the kubelet. It must be quick, because the kubelet waits meanwhile.

        Raises:
            TimeoutError: It is still false after ``timeout`` seconds. The message has ``what`` and
                the kubelet's state.
        """
        found = self._host.changed.until(condition, timeout, every=_POLL)
        if not found:
            raise TimeoutError(f"waited {timeout:g} s for {what}; {self._state()}")
        return found

    def wait_for(
        self,
        resource: str,
        healthy: Collection[str],
        unhealthy: Collection[str] = (),
        *,
        timeout: float = PATIENCE,
    ) -> None:
        """Wait until ``resource`` has exactly these healthy and unhealthy devices."""
        expected = frozenset(healthy), frozenset(unhealthy)

        def matches() -> bool:
            found = self.healthy(resource), self.unhealthy(resource)
            listed = resource in self.resources and resource in self._manager.devices
            return expected == found and listed

        what = f"{resource} to have {_health_text(*expected)}"
        self.wait(matches, timeout=timeout, what=what)

    def _state(self) -> str:
        known = self.resources
        connected = self.registered
        lines = [
            f"{resource} ({'connected' if resource in connected else 'not connected'}) has "
            + _health_text(self.healthy(resource), self.unhealthy(resource))
            for resource in sorted(known)
        ]
        asked = set(self._host.metrics.device_plugin_registration_total) - known
        lines += [f"{resource} asked to register" for resource in sorted(asked)]
        condition = "running" if self.running else "stopped"
        believed = "; ".join([*lines, *self.crashes[-1:]]) or "no plugins"
        return f"the kubelet is {condition}, seed {self.seed}: {believed}"


def _health_text(healthy: Collection[str], unhealthy: Collection[str]) -> str:
    return f"healthy {_ids(healthy)} unhealthy {_ids(unhealthy)}"


def _ids(ids: Collection[str]) -> str:
    shown = sorted(ids)[:_MANY]
    more = len(ids) - len(shown)
    return f"{shown} and {more} more" if more else f"{shown}"
