"""Hearing what plugins tell the simulated kubelet, as it comes."""

from collections.abc import Callable, Sequence

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb


class Observer:
    """Hears each registration and each list, over all starts of a kubelet.

    Override what you want to hear. Methods are called by the threads that serve the plugins, and
    whoever waits for a condition of the kubelet looks again after each.
    """

    def registering(
        self,
        request: pb.RegisterRequest,  # noqa: ARG002 - for those that override this
        path: str,  # noqa: ARG002
    ) -> Callable[[str], None]:
        """Hear of a call of Register before the kubelet does, for a socket at ``path``.

        Returns:
            What to call with the answer: why it is refused, or an empty text.
        """
        return lambda _refusal: None

    def listed(self, resource: str, devices: Sequence[pb.Device]) -> None:
        """Hear of a list of devices before the kubelet does, which stands still meanwhile.

        Each stream has a thread of its own, which calls.
        """
