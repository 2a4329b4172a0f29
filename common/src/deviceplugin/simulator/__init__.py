"""A simulated kubelet: develop, test and demonstrate device plugins without a cluster.

The kubelet speaks the real protocols on real sockets, in any directory. It behaves like the kubelet
of Kubernetes 1.36, or of an earlier release, even where that is surprising. For dynamic resource
allocation (DRA), there is a simulated cluster: an API server over HTTP, and a scheduler.
"""

from deviceplugin.simulator._behaviour import Behaviour
from deviceplugin.simulator._bookings import double_bookings
from deviceplugin.simulator._claim_source import (
    ApiCluster,
    Cluster,
    ClusterError,
    GivenClaims,
    allocated_claim,
)
from deviceplugin.simulator._clock import ManualClock
from deviceplugin.simulator._config import KubeletConfig
from deviceplugin.simulator._control_plane.access import ApiRequest
from deviceplugin.simulator._control_plane.cluster import SimulatedCluster
from deviceplugin.simulator._control_plane.faults import Faults
from deviceplugin.simulator._control_plane.refusals import RefusedError
from deviceplugin.simulator._dra.claims import ClaimDevice
from deviceplugin.simulator._dra.containers import ResourceHealth
from deviceplugin.simulator._errors import (
    CallError,
    ContainerCreateError,
    ContainerStartError,
    KubeletCrashed,
    KubeletStopped,
    PodNotReadyError,
)
from deviceplugin.simulator._kubelet import SimulatedKubelet
from deviceplugin.simulator._node import SimulatedNode
from deviceplugin.simulator._observer import Observer
from deviceplugin.simulator._pod_claims import (
    ContainerClaim,
    ExtendedClaim,
    PodClaim,
    RequestMapping,
)
from deviceplugin.simulator._pods import Container, Outcome, Pod, PodState, RunOptions
from deviceplugin.simulator._release import NEWEST, RELEASES
from deviceplugin.simulator._scripted import StubError
from deviceplugin.simulator._stub import StubPlugin
from deviceplugin.simulator._stub_driver import StubDriver

__all__ = [
    "NEWEST",
    "RELEASES",
    "ApiCluster",
    "ApiRequest",
    "Behaviour",
    "CallError",
    "ClaimDevice",
    "Cluster",
    "ClusterError",
    "Container",
    "ContainerClaim",
    "ContainerCreateError",
    "ContainerStartError",
    "ExtendedClaim",
    "Faults",
    "GivenClaims",
    "KubeletConfig",
    "KubeletCrashed",
    "KubeletStopped",
    "ManualClock",
    "Observer",
    "Outcome",
    "Pod",
    "PodClaim",
    "PodNotReadyError",
    "PodState",
    "RefusedError",
    "RequestMapping",
    "ResourceHealth",
    "RunOptions",
    "SimulatedCluster",
    "SimulatedKubelet",
    "SimulatedNode",
    "StubDriver",
    "StubError",
    "StubPlugin",
    "allocated_claim",
    "double_bookings",
]
