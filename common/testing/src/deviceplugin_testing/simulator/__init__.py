"""A simulated kubelet: develop, test and demonstrate device plugins without a cluster.

The kubelet speaks the real protocols on real sockets, in any directory. It behaves like the kubelet
of one release of Kubernetes, even where that is surprising. For dynamic resource
allocation (DRA), there is a simulated cluster: an API server over HTTP, and a scheduler.
"""

from deviceplugin_testing.simulator._clock import ManualClock
from deviceplugin_testing.simulator._control_plane.api_server.access import ApiRequest, Faults
from deviceplugin_testing.simulator._control_plane.cluster import SimulatedCluster
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from deviceplugin_testing.simulator._dra.claims import ClaimDevice, ResourceHealth
from deviceplugin_testing.simulator._errors import (
    CallError,
    ContainerCreateError,
    ContainerStartError,
    KubeletCrashed,
    KubeletStopped,
    PodNotReadyError,
)
from deviceplugin_testing.simulator._host.claim_source import (
    ApiCluster,
    Cluster,
    ClusterError,
    GivenClaims,
    allocated_claim,
)
from deviceplugin_testing.simulator._host.config import KubeletConfig
from deviceplugin_testing.simulator._host.host import Observer
from deviceplugin_testing.simulator._host.release import Behaviour
from deviceplugin_testing.simulator._kubelet.kubelet import SimulatedKubelet
from deviceplugin_testing.simulator._node import SimulatedNode
from deviceplugin_testing.simulator._pods.pod import (
    Container,
    ContainerClaim,
    ExtendedClaim,
    Outcome,
    Pod,
    PodClaim,
    PodState,
    RequestMapping,
    RunOptions,
    double_bookings,
)
from deviceplugin_testing.simulator._releases import COMPARED, NEWEST, RELEASES
from deviceplugin_testing.simulator._stubs.driver import StubDriver
from deviceplugin_testing.simulator._stubs.plugin import StubPlugin
from deviceplugin_testing.simulator._stubs.scripted import StubError

__all__ = [
    "COMPARED",
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
