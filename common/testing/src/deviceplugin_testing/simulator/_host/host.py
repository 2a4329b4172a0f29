"""The machine of a simulated kubelet: what outlives its processes, and who observes them."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from deviceplugin.proto.dra import HEALTH_TIMEOUT, MAX_HEALTH_MESSAGE
from deviceplugin.proto.dra import dra_health_v1alpha1_pb2 as health_pb
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._host.claim_source import Cluster
from deviceplugin_testing.simulator._host.config import KubeletConfig
from deviceplugin_testing.simulator._host.release import Behaviour
from deviceplugin_testing.simulator._monitor import Monitor
from deviceplugin_testing.simulator._pods.pod import Pod, PodState, RunOptions


class Observer:
    """Is called for registrations, lists and container starts, over all starts of a kubelet.

    Override the methods that you need. The threads that serve the plugins call them. After each
    call, threads that wait for a condition of the kubelet check it again.
    """

    def registering(
        self,
        request: pb.RegisterRequest,  # noqa: ARG002 - for those that override this
        path: str,  # noqa: ARG002
    ) -> Callable[[str], None]:
        """Observe a call of Register before the kubelet handles it, for a socket at ``path``.

        Returns:
            A function to call with the answer: why it is refused, or an empty string.
        """
        return lambda _refusal: None

    def listed(self, resource: str, devices: Sequence[pb.Device]) -> None:
        """Observe a list of devices before the kubelet handles it. The kubelet waits meanwhile.

        It is called in the thread of the stream.
        """

    def started(self, pod: Pod, container: str, options: RunOptions | None) -> None:
        """Observe the start of a container, and what it got. The kubelet waits meanwhile."""


UNKNOWN: Final = "Unknown"
_MAX_POKES: Final = 100
_WORDS: Final = {health_pb.HEALTHY: "Healthy", health_pb.UNHEALTHY: "Unhealthy"}

Key = tuple[str, str]
"""Pool and device."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What a driver reported of a device."""

    health: str = UNKNOWN
    message: str = ""
    timeout: float = HEALTH_TIMEOUT
    at: float = 0.0
    """When it arrived, by the kubelet's clock. The time in the report does not count."""


class HealthCache:
    """The last report of each device. ``host.changed`` guards it. It outlives the kubelet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._drivers: dict[str, dict[Key, HealthReport]] = {}

    def get(self, driver: str, key: Key) -> HealthReport:
        """Return the last report of a device, or one that says nothing if it is too old."""
        report = self._drivers.get(driver, {}).get(key)
        return report if report and not self._is_old(report) else HealthReport()

    def _is_old(self, report: HealthReport) -> bool:
        return self._clock() - report.at > report.timeout

    def update(self, driver: str, devices: Iterable[health_pb.DeviceHealth]) -> set[Key]:
        """Apply a report, and return the devices whose health changed."""
        known = self._drivers.setdefault(driver, {})
        now = self._clock()
        reported = {(d.device.pool_name, d.device.device_name): _read(d, now) for d in devices}
        changed = {
            key
            for key, report in reported.items()
            if key not in known or replace(known[key], at=now) != report
        }
        silent = {key: old for key, old in known.items() if key not in reported}
        lost = {
            key: HealthReport(timeout=old.timeout, at=now)
            for key, old in silent.items()
            if old.health != UNKNOWN and self._is_old(old)
        }
        known.update(reported | lost)
        return changed | lost.keys()

    def clear(self, driver: str) -> None:
        self._drivers.pop(driver, None)


def _read(device: health_pb.DeviceHealth, now: float) -> HealthReport:
    timeout = device.health_check_timeout_seconds
    message = device.message.encode()
    if len(message) > MAX_HEALTH_MESSAGE:
        message = message[: MAX_HEALTH_MESSAGE - 3] + b"..."
    return HealthReport(
        _WORDS.get(device.health, UNKNOWN),
        message.decode(errors="replace"),
        float(timeout) if timeout > 0 else HEALTH_TIMEOUT,
        now,
    )


@dataclass(slots=True)
class Metrics:
    """The kubelet's own metrics, summed over all its starts."""

    device_plugin_registration_total: Counter[str] = field(default_factory=Counter)
    """Register calls by resource name, valid or not. Those by the plugin watcher do not count."""
    device_plugin_alloc_duration_seconds: dict[str, list[float]] = field(default_factory=dict)
    """How long each Allocate took, by resource name, failures included."""
    admission_rejections_total: Counter[str] = field(default_factory=Counter)
    """Rejected pods by reason."""
    topology_manager_admission_errors_total: int = 0
    """Not counted with the policy none."""
    pod_resources_endpoint_requests: Counter[str] = field(default_factory=Counter)
    """Calls of the pod resources API, under total, list, get and get_allocatable."""
    pod_resources_endpoint_errors: Counter[str] = field(default_factory=Counter)
    """Errors under the same names; the kubelet counts only those of get."""
    lists: Counter[str] = field(default_factory=Counter)
    """Device lists received, by resource name. The kubelet does not count them."""
    listed_at: dict[str, float] = field(default_factory=dict)
    """The time at which the last list was applied, before its checkpoint; monotonic seconds."""
    dra_calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls of DRA drivers, by driver and method."""
    slice_deletions: Counter[str] = field(default_factory=Counter)
    """How often ResourceSlices were deleted, by driver; those of all drivers at the empty name."""


@dataclass(slots=True)
class NodeStatus:
    """Capacity and allocatable of the node object, resource to number of devices.

    Only node status updates change it. A resource that was ever there keeps its key.
    """

    capacity: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)


class Host:
    """The surroundings of every kubelet process on this machine.

    ``changed`` guards all state here and in the process; it is poked at every change.
    """

    def __init__(
        self,
        root: Path,
        *,
        seed: int,
        clock: Callable[[], float],
        behaviour: Behaviour,
        config: KubeletConfig,
        observer: Observer,
        cluster: Cluster,
    ) -> None:
        self.root = root
        self.cluster = cluster
        self.cdi_dirs = config.cdi_dirs or (root / "cdi",)
        self.plugin_dir = root / "device-plugins"
        self.kubelet_socket = self.plugin_dir / KUBELET_SOCKET
        self.registry_dir = root / "plugins_registry"
        self.pod_resources_socket = root / "pod-resources" / KUBELET_SOCKET
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.clock = clock
        self.behaviour = behaviour
        self.config = config
        self.release = config.release
        self.observer = observer
        self.changed = Monitor()
        self.metrics = Metrics()
        self.node = NodeStatus()
        self.pods: dict[str, PodState] = {}
        """By uid, in the order of their creation."""
        self.pokes: deque[frozenset[str]] = deque()
        """Sets of pods to sync because a device's health changed."""
        self.crashes: list[str] = []
        self.dra_health = HealthCache(clock)
        self.dra_problems: deque[str] = deque(maxlen=100)
        """Why claims of pods that are gone could not be unprepared."""

    def poke(self, pods: Iterable[str]) -> None:
        """Note pods to sync, unless too many notes wait already."""
        found = frozenset(pods)
        if found and len(self.pokes) < _MAX_POKES:
            self.pokes.append(found)

    def notify(self) -> None:
        """Make all threads that wait for a condition check it again."""
        self.changed.poke()

    def shuffled(self, ids: set[str] | frozenset[str]) -> list[str]:
        """Return ``ids`` in random order."""
        with self.changed:
            return self.rng.sample(sorted(ids), len(ids))
