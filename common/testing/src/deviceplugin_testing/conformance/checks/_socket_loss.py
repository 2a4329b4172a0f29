"""Socket loss: somebody deletes the plugin's socket, while the stream stays open."""

from typing import Final

from deviceplugin_testing.conformance._check import Failed, Group
from deviceplugin_testing.conformance._trial import Trial

GROUP: Final = Group("socket-loss", "Socket loss", disturbing=True)


def delete(trial: Trial) -> float:
    """Delete the plugin's socket once, and return the seconds until there was a new one."""
    node = trial.node()
    socket = node.kubelet.socket_of(node.resource)
    return node.back_after("its socket was deleted", socket.unlink)


@GROUP.check(
    "again",
    "Makes a new socket when its own is deleted",
    why="A starting kubelet deletes sockets; one made a moment too early is gone unnoticed.",
)
def _again(trial: Trial) -> str:
    return f"registered again after {trial.once(delete):.2f} s"


@GROUP.check(
    "stays",
    "Stays registered after that",
    why="If the old stream ends after the new registration, the kubelet drops both.",
)
def _stays(trial: Trial) -> str:
    trial.once_before(delete)
    node = trial.fresh()
    socket = node.kubelet.socket_of(node.resource)
    node.back_after("its socket was deleted a second time", socket.unlink)
    calls = len(node.kubelet.registrations(node.resource))
    node.observe(trial.limits.settle)
    again = len(node.kubelet.registrations(node.resource)) - calls
    if again or node.resource not in node.kubelet.registered:
        raise Failed(f"was lost once more, and registered {again} more times")
    return f"still registered after {trial.limits.settle:g} s"
