"""Stream loss: the kubelet closes the connection, and both sockets stay."""

import time
from functools import partial
from typing import Final

from deviceplugin_testing.conformance._check import Failed, Group
from deviceplugin_testing.conformance._trial import Trial

GROUP: Final = Group("stream-loss", "Stream loss", disturbing=True)

_MOST: Final = 20
"""Most registrations in one second of closed connections."""


def lose(trial: Trial) -> float:
    """Close the connection once, and return the seconds until the plugin was back."""
    node = trial.node()
    return node.back_after("its stream ended", lambda: node.kubelet.hang_up(node.resource))


@GROUP.check(
    "again",
    "Registers again when its stream has ended",
    why="The kubelet never opens it again: the node has no devices until the plugin registers.",
)
def _again(trial: Trial) -> str:
    return f"registered again after {trial.once(lose):.2f} s"


@GROUP.check(
    "calm",
    "Pauses between registrations that do not last",
    why="Two plugins that take one resource from each other would keep the kubelet busy.",
)
def _calm(trial: Trial) -> str:
    trial.once_before(lose)
    node = trial.node()
    before, begin = len(node.kubelet.registrations(node.resource)), time.monotonic()
    hung_up, end = 0.0, begin + 1.0
    while (left := end - time.monotonic()) > 0:
        # Not before the list, because a plugin may wait for a stream that is never opened.
        if node.wait(partial(node.back, hung_up), left):
            hung_up = time.monotonic()
            node.kubelet.hang_up(node.resource)
    count = len(node.kubelet.registrations(node.resource)) - before
    if count > _MOST:
        raise Failed(f"registered {count} times in one second of hanging up")
    node.await_back(hung_up, "the hanging up ended")
    trial.discard()  # its pauses are rightly long by now
    return f"registered {count} times in one second of hanging up"
