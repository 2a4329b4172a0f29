"""Observing what plugins send to the simulated kubelet."""

from collections.abc import Callable, Sequence

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._pods.pod import Pod, RunOptions


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
