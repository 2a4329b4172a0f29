"""A simulated kubelet: develop, test and demonstrate device plugins without a cluster.

It speaks the real protocols on real sockets, in any directory. It behaves like the kubelet of
Kubernetes 1.36, or of an earlier release, even where that is surprising.
"""

from deviceplugin.simulator._behaviour import Behaviour
from deviceplugin.simulator._clock import ManualClock
from deviceplugin.simulator._config import KubeletConfig
from deviceplugin.simulator._errors import ContainerStartError, KubeletCrashed, KubeletStopped
from deviceplugin.simulator._kubelet import SimulatedKubelet
from deviceplugin.simulator._observer import Observer
from deviceplugin.simulator._pods import Container, Outcome, Pod, PodState, RunOptions
from deviceplugin.simulator._release import NEWEST, RELEASES
from deviceplugin.simulator._stub import StubPlugin
from deviceplugin.simulator._stub_service import StubError

__all__ = [
    "NEWEST",
    "RELEASES",
    "Behaviour",
    "Container",
    "ContainerStartError",
    "KubeletConfig",
    "KubeletCrashed",
    "KubeletStopped",
    "ManualClock",
    "Observer",
    "Outcome",
    "Pod",
    "PodState",
    "RunOptions",
    "SimulatedKubelet",
    "StubError",
    "StubPlugin",
]
