"""What outlives a kubelet process: the machine, the API server's state, and the clock."""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin_testing.simulator._host.behaviour import Behaviour
from deviceplugin_testing.simulator._host.claim_source import Cluster
from deviceplugin_testing.simulator._host.config import KubeletConfig
from deviceplugin_testing.simulator._host.health_reports import HealthCache
from deviceplugin_testing.simulator._host.observer import Observer
from deviceplugin_testing.simulator._monitor import Monitor
from deviceplugin_testing.simulator._pods.pod import PodState


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

    def notify(self) -> None:
        """Make all threads that wait for a condition check it again."""
        self.changed.poke()

    def shuffled(self, ids: set[str] | frozenset[str]) -> list[str]:
        """Return ``ids`` in random order."""
        with self.changed:
            return self.rng.sample(sorted(ids), len(ids))
