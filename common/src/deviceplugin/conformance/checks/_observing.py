"""What a plugin does while nothing happens to it, from the start and after something has."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.conformance._check import NotApplicable
from deviceplugin.conformance._kubelet import Listed, Registered
from deviceplugin.conformance._limits import Limits
from deviceplugin.conformance._node import Node
from deviceplugin.conformance._proc import PROC, activity
from deviceplugin.conformance._trial import Trial


@dataclass(frozen=True, slots=True)
class Effort:
    """What a plugin and the processes that it started did for some time."""

    cpu: float
    """Share of one CPU."""
    wakeups: float
    """Per second."""

    def excess(self, limits: Limits) -> str:
        """Return what of it is more than is fine for a plugin that has nothing to do, if any is."""
        if self.cpu > limits.idle_cpu:
            return f"used {self.cpu:.1%} of a CPU; {limits.idle_cpu:.1%} is fine"
        if self.wakeups > limits.wakeups:
            return f"woke up {self.wakeups:.0f} times a second; {limits.wakeups:g} is fine"
        return ""


@dataclass(frozen=True, slots=True)
class Quiet:
    """A plugin on a kubelet that leaves it alone."""

    seconds: float
    registrations: Sequence[Registered]
    lists: Sequence[Listed]
    """Those of the resource that is checked."""
    effort: Effort


def quiet(trial: Trial) -> Quiet:
    """Leave a plugin that has started alone, and look at what it does."""
    node = trial.node()
    begin = time.monotonic()
    node.observe(trial.limits.settle)
    effort = _effort(node, trial.limits.quiet)
    return Quiet(
        seconds=time.monotonic() - begin,
        registrations=node.kubelet.registrations(),
        lists=node.lists,
        effort=effort,
    )


def calmed(node: Node) -> Effort:
    """Watch a plugin until it is calm, or should be, and return what it did last."""
    node.observe(node.limits.settle)
    deadline = time.monotonic() + node.limits.calm
    while True:
        effort = _effort(node, node.limits.look)
        if not effort.excess(node.limits) or time.monotonic() > deadline:
            return effort


def _effort(node: Node, seconds: float) -> Effort:
    pid = node.plugin.pid if node.plugin else 0
    before, begin = activity(pid), time.monotonic()
    node.observe(seconds)
    cpu, wakeups = activity(pid).since(before)
    took = time.monotonic() - begin
    return Effort(cpu / took, wakeups / took)


def need_proc(proc: Path = PROC) -> None:
    """Raise ``NotApplicable`` on a system that does not tell what processes do."""
    if not (proc / "self" / "stat").exists():
        raise NotApplicable(f"there is no {proc}")
