"""Observing an undisturbed plugin, after its start or after an event."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin_testing.conformance._check import NotApplicable
from deviceplugin_testing.conformance._kubelet import Listed, Registered
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._process import PROC, activity
from deviceplugin_testing.conformance._subject import Limits
from deviceplugin_testing.conformance._trial import Trial


@dataclass(frozen=True, slots=True)
class Effort:
    """The CPU time and wake-ups of a plugin and its descendants over some time."""

    cpu: float
    wakeups: float

    def excess(self, limits: Limits) -> str:
        """Return what exceeds the limits of an idle plugin, or an empty string."""
        return self.cpu_excess(limits) or self.wakeups_excess(limits)

    def cpu_excess(self, limits: Limits) -> str:
        excess = f"used {self.cpu:.1%} of a CPU; {limits.idle_cpu:.1%} is fine"
        return excess if self.cpu > limits.idle_cpu else ""

    def wakeups_excess(self, limits: Limits) -> str:
        excess = f"woke up {self.wakeups:.0f} times a second; {limits.wakeups:g} is fine"
        return excess if self.wakeups > limits.wakeups else ""


@dataclass(frozen=True, slots=True)
class Quiet:
    """The behaviour of an undisturbed plugin."""

    seconds: float
    registrations: Sequence[Registered]
    lists: Sequence[Listed]
    effort: Effort


def quiet(trial: Trial) -> Quiet:
    """Leave a started plugin alone, and observe what it does."""
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


def calmed(node: PluginNode) -> Effort:
    """Observe a plugin until it is idle, or should be; return its last effort."""
    node.observe(node.limits.settle)
    deadline = time.monotonic() + node.limits.calm
    while True:
        effort = _effort(node, node.limits.look)
        if not effort.excess(node.limits) or time.monotonic() > deadline:
            return effort


def _effort(node: PluginNode, seconds: float) -> Effort:
    before, begin = activity(node.pid), time.monotonic()
    node.observe(seconds)
    cpu, wakeups = activity(node.pid).since(before)
    took = time.monotonic() - begin
    return Effort(cpu / took, wakeups / took)


def need_proc(proc: Path = PROC) -> None:
    """Raise ``NotApplicable`` on a system without ``/proc``."""
    if not (proc / "self" / "stat").exists():
        raise NotApplicable(f"there is no {proc}")
