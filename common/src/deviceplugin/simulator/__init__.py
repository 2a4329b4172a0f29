"""A simulated kubelet: develop, test and demonstrate device plugins without a cluster.

It speaks the real protocols on real sockets, in any directory, and behaves as the kubelet of
Kubernetes 1.36 does, including where that is surprising.
"""

from deviceplugin.simulator._kubelet import SimulatedKubelet
from deviceplugin.simulator._stub import StubError, StubPlugin

__all__ = ["SimulatedKubelet", "StubError", "StubPlugin"]
