"""What a plugin does while nothing happens to it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.bench._proc import PROC, activity
from deviceplugin.conformance._check import NotApplicable
from deviceplugin.conformance._kubelet import Listed, Registered
from deviceplugin.conformance._trial import Trial


@dataclass(frozen=True, slots=True)
class Quiet:
    """A plugin on a kubelet that leaves it alone."""

    seconds: float
    registrations: Sequence[Registered]
    lists: Sequence[Listed]
    """Those of the resource that is checked."""
    cpu: float
    """Share of one CPU."""
    wakeups: float
    """Per second."""


def quiet(trial: Trial) -> Quiet:
    """Leave a plugin that has started alone, and look at what it does."""
    node = trial.node()
    pid = node.plugin.pid if node.plugin else 0
    node.observe(trial.limits.settle)
    before, begin = activity(pid), time.monotonic()
    node.observe(trial.limits.quiet)
    cpu, wakeups = activity(pid).since(before)
    took = time.monotonic() - begin
    return Quiet(
        seconds=trial.limits.settle + took,
        registrations=node.kubelet.registrations(),
        lists=node.lists,
        cpu=cpu / took,
        wakeups=wakeups / took,
    )


def need_proc(proc: Path = PROC) -> None:
    """Raise ``NotApplicable`` on a system that does not tell what processes do."""
    if not (proc / "self" / "stat").exists():
        raise NotApplicable(f"there is no {proc}")
