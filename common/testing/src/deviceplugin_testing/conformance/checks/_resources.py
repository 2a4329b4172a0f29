"""Resources: how much the plugin uses on its node, and whether that grows."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deviceplugin._platform.waiting import Waiter
from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._process import Holdings, holdings
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks._losses import lose, restart
from deviceplugin_testing.conformance.checks._observing import calmed, need_proc, quiet
from deviceplugin_testing.conformance.checks._shutdown import sockets

GROUP: Final = CheckGroup("resources", "Resources")

_POLL: Final = 0.1
_MIB: Final = 1024 * 1024
_LONGEST_UP: Final = 0.05
"""Most seconds between restarts."""


@dataclass(frozen=True, slots=True)
class Churn:
    """A plugin before and after many restarts of its kubelet."""

    before: Holdings
    after: Holdings
    sockets_before: int
    sockets_after: int


def churn(trial: Trial) -> Churn:
    """Restart the kubelet many times, after a first restart that fills caches and pools."""
    need_proc()
    trial.once_before(restart)
    node, rng = trial.node(), trial.rng("churn")
    try:
        _restart(node)
        node.observe(trial.limits.settle)
        before = holdings(node.pid)
        sockets_before = len(sockets(node.kubelet.plugin_dir))
        for _ in range(trial.limits.leak_restarts):
            _restart(node)
            node.observe(rng.uniform(0, _LONGEST_UP))
        after = _rested(node, before)
    except Failed as end:
        raise NotApplicable(f"it did not survive the restarts: {end}") from end
    return Churn(before, after, sockets_before, len(sockets(node.kubelet.plugin_dir)))


def _restart(node: PluginNode) -> None:
    node.kubelet.stop()
    node.back_after("a restart", node.kubelet.start)


def _rested(node: PluginNode, before: Holdings) -> Holdings:
    """Return what the plugin has once it is back to ``before``, or some time later."""
    now = holdings(node.pid)

    def rested() -> bool:
        nonlocal now
        node.observe(0)
        now = holdings(node.pid)
        return now.threads <= before.threads and now.descriptors <= before.descriptors

    Waiter().until(rested, node.limits.settle * 3, every=_POLL)
    return now


def _gained(trial: Trial, name: str, noun: str) -> str:
    seen, count = trial.once(churn), trial.limits.leak_restarts
    before, after = getattr(seen.before, name), getattr(seen.after, name)
    # A pool may still be filling up. A leak grows at nearly every restart.
    if after - before > max(1, count // 3):
        raise Failed(f"{before} {noun} before, {after} after {count} restarts of the kubelet")
    return f"{before} {noun} before, {after} after {count} restarts of the kubelet"


@GROUP.check(
    "idle-cpu",
    "Uses next to no CPU while nothing happens",
    why="It runs on every node, all the time, beside the work that the node is for.",
)
def _idle_cpu(trial: Trial) -> str:
    need_proc()
    effort = trial.once(quiet).effort
    if excess := effort.cpu_excess(trial.limits):
        raise Failed(excess)
    return f"used {effort.cpu:.2%} of a CPU"


@GROUP.check(
    "wake-ups",
    "Sleeps while nothing happens",
    why="A process that polls many times a second keeps a CPU from saving power.",
)
def _wake_ups(trial: Trial) -> str:
    need_proc()
    effort = trial.once(quiet).effort
    if excess := effort.wakeups_excess(trial.limits):
        raise Failed(excess)
    return f"woke up {effort.wakeups:.1f} times a second"


@GROUP.check(
    "threads",
    "Does not gain threads when the kubelet restarts",
    why="With leaked threads, a plugin cannot start another one some months later.",
)
def _threads(trial: Trial) -> str:
    return _gained(trial, "threads", "threads")


@GROUP.check(
    "descriptors",
    "Does not gain open files or sockets when the kubelet restarts",
    why="Some months later, a plugin at its limit of open files cannot serve any more.",
)
def _descriptors(trial: Trial) -> str:
    return _gained(trial, "descriptors", "descriptors")


@GROUP.check(
    "memory",
    "Does not grow when the kubelet restarts",
    why="A DaemonSet uses its memory on every node, and a plugin above its limit is killed.",
)
def _memory(trial: Trial) -> str:
    seen, count = trial.once(churn), trial.limits.leak_restarts
    before, after = seen.before.rss, seen.after.rss
    text = f"{before / _MIB:.1f} MiB before, {after / _MIB:.1f} MiB after {count} restarts"
    if after > before * 1.1 + trial.limits.growth:
        raise Failed(text)
    return text


@GROUP.check(
    "socket-files",
    "Leaves no old sockets in the plugin directory",
    why="Each looks like a plugin until the kubelet restarts.",
    apart=True,
)
def _socket_files(trial: Trial) -> str:
    trial.once_before(lose)
    node = trial.node()
    directory = node.kubelet.plugin_dir
    before = len(sockets(directory))
    for _ in range(3):
        try:
            node.back_after("its stream ended", lambda: node.kubelet.hang_up(node.resource))
        except Failed as end:
            raise NotApplicable(str(end)) from end
    node.wait(lambda: len(sockets(directory)) <= before, trial.limits.settle)
    gained = len(sockets(directory)) - before
    if gained > 0:
        raise Failed(f"{gained} sockets more after 3 lost streams")
    return "none after 3 lost streams"


def _stays_calm(
    trial: Trial,
    what: str,
    happens: Callable[[PluginNode], object],
    known_by: Callable[[Trial], object] | None = None,
) -> str:
    """Call ``happens`` on a plugin, and check that the plugin is idle afterwards.

    The check first waits for the plugin to recover, unless ``known_by`` has shown that it does not.
    A plugin that does not recover can also use a whole CPU.
    """
    need_proc()
    if trial.once_before(quiet).effort.excess(trial.limits):
        raise NotApplicable("it is not idle before that")
    recovers = known_by is not None and trial.is_fine(known_by)
    node, begin = trial.fresh(), time.monotonic()
    try:
        happens(node)
        if recovers:
            node.wait(lambda: node.back(begin), node.limits.within)
        effort = calmed(node)
    except Failed as end:
        raise NotApplicable(str(end)) from end
    if excess := effort.excess(trial.limits):
        raise Failed(f"{what} it {excess}")
    return f"used {effort.cpu:.2%} of a CPU, woke up {effort.wakeups:.1f} times a second"


@GROUP.check(
    "after-restart",
    "Is idle again after the kubelet has restarted",
    why="A loop that watches the old kubelet.sock often spins for ever once that is gone.",
    apart=True,
)
def _after_restart(trial: Trial) -> str:
    return _stays_calm(
        trial, "after a restart of the kubelet", lambda node: node.kubelet.restart(), restart
    )


@GROUP.check(
    "after-stream-loss",
    "Is idle again after its stream has ended",
    why="A loop that sends to a closed stream fails at once, again and again.",
    apart=True,
)
def _after_stream_loss(trial: Trial) -> str:
    return _stays_calm(
        trial, "after its stream ended", lambda node: node.kubelet.hang_up(node.resource), lose
    )


@GROUP.check(
    "without-kubelet",
    "Is idle while there is no kubelet",
    why="A node whose kubelet is down has enough trouble; retries should be seconds apart.",
    apart=True,
)
def _without_kubelet(trial: Trial) -> str:
    return _stays_calm(trial, "while there was no kubelet", lambda node: node.kubelet.stop())
