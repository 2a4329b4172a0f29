"""Stream loss: the kubelet hangs up, and both sockets stay where they are."""

import time
from typing import Final

from deviceplugin.conformance._check import Failed, Group
from deviceplugin.conformance._trial import Trial

GROUP: Final = Group("stream-loss", "Stream loss")

_MOST: Final = 40
"""Registrations in one second of hanging up."""


@GROUP.check(
    "again",
    "Registers again when its stream has ended",
    why="The kubelet never opens it again: the node has no devices until the plugin registers.",
)
def _again(trial: Trial) -> str:
    node = trial.node()
    begin = time.monotonic()
    node.kubelet.hang_up(node.resource)
    return f"registered again after {node.await_back(begin, 'its stream ended'):.2f} s"


@GROUP.check(
    "calm",
    "Pauses between registrations that do not last",
    why="Two plugins that take one resource from each other would keep the kubelet busy.",
)
def _calm(trial: Trial) -> str:
    node = trial.node()
    before = len(node.kubelet.registrations(node.resource))
    end = time.monotonic() + 1.0
    while (left := end - time.monotonic()) > 0:
        if node.wait(lambda: node.resource in node.kubelet.registered, left):
            try:
                node.kubelet.hang_up(node.resource)
            except LookupError:  # it was quicker
                continue
    count = len(node.kubelet.registrations(node.resource)) - before
    if count > _MOST:
        raise Failed(f"registered {count} times in one second of hanging up")
    node.await_back(end, "the hanging up ended")
    return f"registered {count} times in one second of hanging up"
