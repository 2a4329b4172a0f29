"""Losses: restarts of kubelet, driver and machine, and the end of the driver."""

from collections.abc import Callable
from typing import Final

from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._process import Plugin
from deviceplugin_testing.conformance.dra._node import DraNode
from deviceplugin_testing.conformance.dra._trial import (
    DraTrial,
    exclusive,
    prepared,
    refused,
    released,
)
from deviceplugin_testing.conformance.dra.checks._claims import one_holder, ready
from deviceplugin_testing.conformance.dra.checks._devices import end_pod, pod, run_pod, why_not

GROUP: Final = CheckGroup("losses", "Restarts and losses", disturbing=True)


def _relaunch(node: DraNode, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Kill the driver, start it again after ``meanwhile``, and wait until it is registered again.

    A kubelet reaches the new driver already where the old one was registered. It unregisters that
    once it notices the new socket: the driver is not registered then, for a moment.
    """
    node.kill()
    node.plugin = None
    meanwhile()
    old = node.sockets()
    node.launch()
    start = node.limits.start
    node.require(lambda: node.sockets() - old, "no new registration socket after a kill", start)
    node.kubelet.watch()  # unregisters
    node.kubelet.watch()  # registers
    node.require(lambda: node.connected, "not registered again after a kill", start)


@GROUP.check(
    "kubelet",
    "Is registered again, with its slices, after the kubelet has restarted",
    why="A kubelet deletes all slices of its node when it starts, while drivers register.",
)
def _kubelet(trial: DraTrial) -> str:
    node = trial.node()
    before = set(node.devices)
    wiped = node.kubelet.metrics.slice_deletions[""]
    node.kubelet.restart()
    node.require(
        lambda: node.kubelet.metrics.slice_deletions[""] > wiped, "the kubelet deletes no slices"
    )
    node.require(
        lambda: node.up and set(node.devices) == before,
        f"not all {len(before)} devices are back",
        trial.limits.republished,
    )
    return f"{len(before)} devices are back"


@GROUP.check(
    "kill",
    "Gives the same answers after a kill",
    why="The kubelet asks again, and adds the answer to the one from before.",
)
def _kill(trial: DraTrial) -> str:
    node = ready(trial)
    claim = node.claim(node.devices[0])
    before = prepared(node, claim)
    _relaunch(node)
    node.require(lambda: node.up, "no slices after a kill", node.limits.start)
    if prepared(node, claim) != before:
        raise Failed("the answer differs from the one before the kill")
    released(node, claim)
    return "the same answer after a kill"


def _beside(node: DraNode) -> Plugin:
    """Start a newer driver, and give it time to register; NotApplicable if it takes the socket."""
    older, before = node.plugin, node.sockets()
    newer = node.launch(beside=True)
    # One that waits until the older one ends is as good as one that registers at once.
    node.wait(lambda: node.sockets() != before, node.limits.start / 2)
    now = node.sockets()
    if {name for name, _ in before - now} & {name for name, _ in now}:
        newer.kill()
        node.plugin = older
        raise NotApplicable("a newer instance takes the socket of the older: it cannot surge")
    node.kubelet.watch()
    return newer


@GROUP.check(
    "two",
    "Serves claims, with its slices, while two instances run and whichever of them ends",
    why="A rolling update with maxSurge: 1 starts the new one first, and may be rolled back.",
    apart=True,
)
def _two(trial: DraTrial) -> str:
    node = ready(trial)
    devices, claim = node.devices, node.claim(node.devices[0])
    answer, older = prepared(node, claim), node.plugin
    assert older is not None

    def serves(what: str) -> None:
        node.kubelet.watch()
        node.require(lambda: node.up, f"not registered, with slices, {what}", node.limits.start)
        if prepared(node, claim) != answer or node.devices != devices:
            raise Failed(f"another answer, or other devices, {what}")

    def connected() -> set[str]:
        return set(node.kubelet.dra.connected.get(node.driver, ()))

    ended, alone = [older], connected()
    try:
        ended.append(_beside(node))
        serves("while two run")
        ended[-1].kill()
        node.plugin = older
        # Until a kubelet notices, it calls the one that was killed, and tries again.
        node.require(lambda: connected() <= alone, "not disconnected after a kill")
        serves("after the newer one was killed")
        ended.append(_beside(node))
        older.terminate(node.limits.stop)
        serves("after the older one has ended")
        released(node, claim)
    finally:
        for one in ended:
            one.kill()
    return "the same answers, whichever ended"


@GROUP.check(
    "held",
    "Knows after a kill who holds its devices",
    why="A device of a pod that runs must not be given to another.",
)
def _held(trial: DraTrial) -> str:
    trial.once_before(one_holder)
    node = trial.node()
    device = exclusive(node)[0]
    claim = node.claim(device)
    prepared(node, claim)
    _relaunch(node)
    node.require(lambda: node.up, "no slices after a kill", node.limits.start)
    words = refused(node, node.claim(device), "the device of a claim from before the kill")
    released(node, claim)
    return words


@GROUP.check(
    "lost-files",
    "Writes a lost CDI file again when the claim is prepared again",
    why="A machine's reboot empties /var/run; with an answer alone the container does not start.",
)
def _lost_files(trial: DraTrial) -> str:
    trial.once_before(pod)
    node = trial.node()
    run_pod(node, "lost")
    _relaunch(node, node.kubelet.reboot)
    node.require(
        lambda: node.kubelet.pod(node.node.pod("lost")).running,
        "the pod is not back after a reboot",
        node.limits.start + node.limits.within,
        why=lambda: why_not(node, "lost"),
    )
    end_pod(node, "lost")
    return "the pod runs again after a reboot"


@GROUP.check(
    "shutdown",
    "Ends soon after SIGTERM with status 0, and removes its registration socket",
    why="The kubelet dials a socket that stays again and again, and notices the next one late.",
)
def _shutdown(trial: DraTrial) -> str:
    node = trial.node()
    plugin = node.plugin
    if plugin is None:
        raise NotApplicable("not started")
    took = plugin.terminate(trial.limits.stop)
    if took is None:
        raise Failed(f"did not end within {trial.limits.stop:g} s")
    if plugin.status != 0:
        raise Failed(f"ended with status {plugin.status}")
    if left := sorted(name for name, _ in node.sockets()):
        raise Failed(f"left {', '.join(left)}")
    return f"ended after {took:.2f} s"
