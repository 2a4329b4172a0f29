"""Losses: the kubelet restarts, closes the stream, or somebody deletes the plugin's socket."""

import time
from functools import partial
from typing import Final

from deviceplugin_testing.conformance._check import CheckGroup, Failed
from deviceplugin_testing.conformance._trial import Trial

RESTART: Final = CheckGroup("restart", "Kubelet restart", disturbing=True)

_UP: Final = 0.3
_DOWN: Final = 0.2
"""Most seconds for which the kubelet is up, and down, in restarts at random moments."""


def restart(trial: Trial) -> float:
    """Restart the kubelet once, and return the seconds until the plugin was back."""
    node = trial.node()
    node.kubelet.stop()
    return node.back_after("a restart", node.kubelet.start)


@RESTART.check(
    "again",
    "Registers again after the kubelet has restarted",
    why="A kubelet forgets all plugins and deletes all sockets when it starts.",
)
def _again(trial: Trial) -> str:
    return f"registered again after {trial.once(restart):.2f} s"


@RESTART.check(
    "many",
    "Registers again after several restarts at random moments",
    why="A kubelet in a crash loop restarts while plugins still recover from the last restart.",
)
def _many(trial: Trial) -> str:
    trial.once_before(restart)
    node, rng = trial.node(), trial.rng("restarts")
    begin = time.monotonic()
    for _ in range(trial.limits.restarts):
        node.kubelet.stop()
        node.observe(rng.uniform(0, _DOWN))
        begin = time.monotonic()
        node.kubelet.start()
        node.observe(rng.uniform(0, _UP))
    count = trial.limits.restarts
    return (
        f"registered {node.await_back(begin, f'{count} restarts'):.2f} s after the last of {count}"
    )


@RESTART.check(
    "long-down",
    "Waits for a kubelet that stays down",
    why="An upgrade of the kubelet takes minutes; a plugin that gives up is then in a back-off.",
)
def _long_down(trial: Trial) -> str:
    trial.once_before(restart)
    node, down = trial.node(), trial.limits.down
    node.kubelet.stop()
    node.observe(down)
    took = node.back_after(f"a kubelet that was down for {down:g} s", node.kubelet.start)
    return f"registered again after {took:.2f} s"


@RESTART.check(
    "late-socket",
    "Waits for kubelet.sock if it starts before the kubelet",
    why="After a reboot the order is random; a plugin that exits has to wait for a back-off.",
    apart=True,
)
def _late_socket(trial: Trial) -> str:
    trial.node()
    node = trial.empty()
    node.kubelet.plugin_dir.mkdir(parents=True, exist_ok=True)
    node.launch()
    # The plugin starts before it looks for the kubelet, which takes longer beside others.
    node.observe(trial.start_took + trial.limits.down)
    took = node.back_after("kubelet.sock appeared", node.kubelet.start, started=True)
    return f"registered after {took:.2f} s"


@RESTART.check(
    "after-kill",
    "Starts although its old socket is still there",
    why="A killed plugin leaves its socket file, and nobody removes it.",
    apart=True,
)
def _after_kill(trial: Trial) -> str:
    node = trial.node()
    node.kill()
    node.await_gone()
    took = node.back_after("a start after a kill", node.launch, started=True)
    return f"registered after {took:.2f} s"


@RESTART.check(
    "stable-ids",
    "Lists the same ids after its own restart",
    why="Pods keep their ids; a pod whose id is not listed any more is rejected.",
    apart=True,
)
def _stable_ids(trial: Trial) -> str:
    node = trial.node()
    before = set(node.lists[-1].ids)
    if node.terminate(trial.limits.stop) is None:
        node.kill()
    node.await_gone()
    node.back_after("a stop", node.launch, started=True)
    missing = before - set(node.lists[-1].ids)
    if missing:
        raise Failed(f"{len(missing)} of {len(before)} ids are not listed any more")
    return f"{len(before)} ids are the same"


STREAM_LOSS: Final = CheckGroup("stream-loss", "Stream loss", disturbing=True)

_MOST: Final = 20
"""Most registrations in one second of closed connections."""


def lose(trial: Trial) -> float:
    """Close the connection once, and return the seconds until the plugin was back."""
    node = trial.node()
    return node.back_after("its stream ended", lambda: node.kubelet.hang_up(node.resource))


@STREAM_LOSS.check(
    "again",
    "Registers again when its stream has ended",
    why="The kubelet never opens it again: the node has no devices until the plugin registers.",
)
def _again_after_stream_loss(trial: Trial) -> str:
    return f"registered again after {trial.once(lose):.2f} s"


@STREAM_LOSS.check(
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


SOCKET_LOSS: Final = CheckGroup("socket-loss", "Socket loss", disturbing=True)


def delete(trial: Trial) -> float:
    """Delete the plugin's socket once, and return the seconds until there was a new one."""
    node = trial.node()
    socket = node.kubelet.socket_of(node.resource)
    return node.back_after("its socket was deleted", socket.unlink)


@SOCKET_LOSS.check(
    "again",
    "Makes a new socket when its own is deleted",
    why="A starting kubelet deletes sockets; one made a moment too early is gone unnoticed.",
)
def _again_after_socket_loss(trial: Trial) -> str:
    return f"registered again after {trial.once(delete):.2f} s"


@SOCKET_LOSS.check(
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

    def lost() -> bool:
        again = len(node.kubelet.registrations(node.resource)) > calls
        return again or node.resource not in node.kubelet.registered

    if node.wait(lost, trial.limits.settle):
        raise Failed("was lost once more")
    return f"still registered after {trial.limits.settle:g} s"
