"""What to measure of which plugin, and how often."""

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from deviceplugin.bench import _measure
from deviceplugin.bench._figures import Figure, Section
from deviceplugin.bench._subject import BenchError, Subject, running

_GOPHER: Final = "gopher-device-plugin"
_FEW: Final = 8
"""Devices in one Allocate, besides one."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often each thing is measured."""

    starts: int = 10
    idle: float = 60.0
    """Seconds for which the plugin is left alone."""
    allocations: int = 1000
    changes: int = 30
    restarts: int = 50
    settle: float = 3.0
    """Seconds for what is under way to end, before it counts as idle or as leaked."""
    core_starts: int = 3
    core_changes: int = 15
    core_restarts: int = 10
    core_devices: int = 10_000
    core_resources: int = 100
    seed: int = 0


QUICK: Final = Plan(
    starts=2,
    idle=1.0,
    allocations=50,
    changes=5,
    restarts=5,
    settle=0.3,
    core_starts=1,
    core_changes=3,
    core_restarts=2,
    core_devices=1000,
    core_resources=10,
)
"""Whether everything works; its figures say little."""


def measure(subject: Subject, plan: Plan, say: Say) -> Section:
    """Measure everything about one plugin."""
    say(f"{subject.title}: starting it {plan.starts} times")
    figures = _measure.starts(subject, plan.starts)
    with running(subject) as run:
        run.wait_listed()
        say(f"{subject.title}: leaving it alone for {plan.idle:g} s")
        figures += _measure.idle(run, plan.idle, settle=plan.settle)
        figures += _measure.size(run)
        figures += _measure.message(run)
        say(f"{subject.title}: allocating, changing devices")
        for ids in (1, _FEW):
            figures += _measure.allocations(run, plan.allocations, ids)
        figures += _measure.rss(run, f"after {plan.allocations} allocations of each")
        figures += _measure.changes(run, plan.changes)
        say(f"{subject.title}: restarting the kubelet {plan.restarts} times")
        figures += _measure.restarts(run, plan.restarts, seed=plan.seed, settle=plan.settle)
    return Section(subject.title, subject.command, figures)


def gopher() -> Subject:
    """Return the gopher plugin, with eight gophers.

    Raises:
        BenchError: It is not installed.
    """
    beside = Path(sys.executable).with_name(_GOPHER)
    path = str(beside) if beside.exists() else shutil.which(_GOPHER)
    if path is None:
        raise BenchError(f"{_GOPHER} is not installed; give a command to measure, after --")
    directory = "{devices_dir}"
    command = (path, "--directory", directory)
    return Subject(title="gopher", command=command, touch=directory)


def many(devices: int, resources: int) -> Subject:
    """Return a plugin on our core with this many devices for each of this many resources."""
    directory = "{devices_dir}"
    module = ("-m", "deviceplugin.bench._many")
    numbers = (f"--devices={devices}", f"--resources={resources}")
    return Subject(
        title=f"{resources:,} x {devices:,} devices",
        command=(sys.executable, *module, *numbers, f"--directory={directory}"),
        resources=resources,
        touch=directory,
    )


def measure_many_devices(plan: Plan, say: Say) -> Section:
    """Measure one resource with very many devices."""
    subject = replace(
        many(plan.core_devices, 1), title=f"core: {plan.core_devices:,} devices in one resource"
    )
    say(subject.title)
    figures = _measure.starts(subject, plan.core_starts)
    with running(subject) as run:
        run.wait_listed()
        figures += _measure.message(run)
        figures += _measure.changes(run, plan.core_changes)
        figures += _measure.rss(run, f"after {plan.core_changes} changes")
    return Section(subject.title, subject.command, figures)


def measure_many_resources(plan: Plan, say: Say) -> Section:
    """Measure one process with very many resources, each with one device."""
    count = plan.core_resources
    subject = replace(many(1, count), title=f"core: {count} resources in one process")
    say(subject.title)
    one = _by_name(_measure.starts(many(1, 1), plan.core_starts))
    figures = _measure.starts(subject, plan.core_starts)
    all_ = _by_name(figures)
    with running(subject) as run:
        run.wait_listed()
        figures += _measure.restarts(run, plan.core_restarts, seed=plan.seed, settle=plan.settle)
    return Section(
        subject.title,
        subject.command,
        [
            *figures,
            _per_further("RSS", "KiB", one["RSS at first list"], all_["RSS at first list"], count),
            _per_further(
                "threads", "", one["threads at first list"], all_["threads at first list"], count
            ),
        ],
    )


def _by_name(figures: Sequence[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def _per_further(name: str, unit: str, one: Figure, all_: Figure, count: int) -> Figure:
    factor = 1024 if unit == "KiB" else 1
    further = max(1, count - 1)
    values = [(value - one.median) * factor / further for value in all_.values]
    return Figure(f"{name} per further resource", unit, values)
