"""What to measure for which plugin, and how often."""

import itertools
import random
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import grpc

from deviceplugin_testing.conformance._process import Holdings
from deviceplugin_testing.tools.bench import _measure, _subject
from deviceplugin_testing.tools.bench._figures import BenchError, Figure, Section
from deviceplugin_testing.tools.bench._subject import BenchSubject, Run, running

_GOPHER: Final = "gopher-device-plugin"
_FEW: Final = 8
"""Devices in one Allocate, besides those of a single device."""
_STREAMS: Final = 8
"""Open streams at a time, besides the kubelet's."""

_MIB: Final = 1024 * 1024

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    starts: int = 10
    idle: float = 60.0
    allocations: int = 1000
    changes: int = 30
    restarts: int = 50
    settle: float = 3.0
    """Seconds to wait before the plugin counts as idle, and before anything counts as a leak."""
    core_starts: int = 3
    core_changes: int = 15
    core_restarts: int = 10
    core_devices: Sequence[int] = (10, 1_000, 10_000, 50_000)
    core_resources: Sequence[int] = (1, 10, 100)
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
    core_devices=(10, 1_000),
    core_resources=(1, 10),
)
"""Only shows that everything works; its figures mean little."""


def measure(subject: BenchSubject, plan: Plan, say: Say) -> Section:
    """Measure everything about one plugin. What it cannot do is reported to ``say`` and skipped."""
    say(f"{subject.title}: starting it {plan.starts} times")
    figures = _measure.starts(subject, plan.starts)

    def add(measured: Callable[[], Sequence[Figure]]) -> None:
        try:
            figures.extend(measured())
        except BenchError as error:
            say(f"{subject.title}: not measured: {error}")

    with running(subject) as run:
        run.wait_listed()
        say(f"{subject.title}: leaving it alone for {plan.idle:g} s")
        figures += _measure.idle(run, plan.idle, settle=plan.settle)
        figures += _measure.size(run)
        figures += _measure.message(run)
        say(f"{subject.title}: allocating, changing devices")
        for ids in (1, _FEW):
            figures += _measure.allocations(run, plan.allocations, ids)
        figures += _measure.memory(run, f"after {plan.allocations} allocations of each")
        add(lambda: _measure.changes(run, plan.changes))
        add(lambda: _measure.allocations_under(run, plan.allocations, _STREAMS))
        if plan.restarts and subject.comes_back:
            say(f"{subject.title}: restarting the kubelet {plan.restarts} times")
            add(lambda: _measure.restarts(run, plan.restarts, seed=plan.seed, settle=plan.settle))
    return Section(subject.title, subject.command, figures)


def gopher() -> BenchSubject:
    """Return the gopher plugin, with eight gophers; raise ``BenchError`` if it is not installed."""
    beside = Path(sys.executable).with_name(_GOPHER)
    path = str(beside) if beside.exists() else shutil.which(_GOPHER)
    if path is None:
        raise BenchError(f"{_GOPHER} is not installed; give a command to measure, after --")
    directory = "{devices_dir}"
    command = (path, "--directory", directory)
    return BenchSubject(title="gopher", command=command, touch=directory)


def many(devices: int, resources: int, *, keep: bool = False) -> BenchSubject:
    """Return a plugin on our core, which with ``keep`` creates its devices only once."""
    directory = "{devices_dir}"
    module = ("-m", "deviceplugin_testing.tools.bench._many")
    numbers = (f"--devices={devices}", f"--resources={resources}", *(["--keep"] if keep else []))
    return BenchSubject(
        title=f"{resources:,} x {devices:,} devices",
        command=(sys.executable, *module, *numbers, f"--directory={directory}"),
        resources=resources,
        touch=directory,
    )


def bare() -> BenchSubject:
    """Return the least plugin that grpcio and our messages allow."""
    program = Path(__file__).with_name("_bare.py")  # as a file: a module would import its package
    command = (sys.executable, str(program), "{devices_dir}")
    return BenchSubject(title="bare", command=command, comes_back=False)


def measure_many_devices(devices: int, plan: Plan, say: Say) -> Section:
    subject = replace(many(devices, 1), title=f"core: {devices:,} devices in one resource")
    say(subject.title)
    figures = _measure.starts(subject, plan.core_starts)
    with running(subject) as run:
        run.wait_listed()
        figures += _measure.message(run)
        figures += _measure.changes(run, plan.core_changes)
        figures += _measure.memory(run, f"after {plan.core_changes} changes")
    with running(many(devices, 1, keep=True)) as run:
        run.wait_listed()
        figures += [
            replace(figure, name=f"{figure.name}, of devices that are kept")
            for figure in _measure.changes(run, plan.core_changes)
        ]
    return Section(subject.title, subject.command, figures)


def measure_many_resources(resources: int, plan: Plan, say: Say) -> Section:
    subject = replace(many(1, resources), title=f"core: {resources} resources in one process")
    say(subject.title)
    figures = _measure.starts(subject, plan.core_starts)
    with running(subject) as run:
        run.wait_listed()
        figures += _measure.restarts(run, plan.core_restarts, seed=plan.seed, settle=plan.settle)
    return Section(subject.title, subject.command, figures)


def growth(kind: str, sections: Mapping[int, Section]) -> Iterator[Section]:
    """Yield how the figures of ``sections``, by their number of ``kind``, grow with each step.

    If a figure grows by at most the same factor as the number, it grows at most in proportion.
    """
    for small, large in itertools.pairwise(sorted(sections)):
        after = {figure.name: figure for figure in sections[large].figures}
        title = f"from {small:,} to {large:,} {kind}, {large / small:g} times as many: times larger"
        yield Section(
            title,
            (),
            [
                Figure(figure.name, "x", [after[figure.name].median / figure.median])
                for figure in sections[small].figures
                if figure.name in after and figure.unit and figure.median
            ],
        )


_SAMPLES: Final = 20
"""Number of samples of memory, threads and descriptors."""
_MOMENT: Final = 0.2
"""Most seconds between two events."""
_SETTLE: Final = 3.0
"""Most seconds to wait before a sample, for what is under way to end."""


def soak(subject: BenchSubject, seconds: float, seed: int, say: Say) -> Section:
    """Cause random events for ``subject`` for ``seconds``, and sample it periodically.

    The events are allocations, changes of devices, lost streams and restarts of the kubelet, by
    ``seed``. At the first sample, all kinds have happened. Later samples should not be larger.
    """
    with running(subject) as run:
        run.wait_listed()
        trouble = _Trouble(run, random.Random(seed))  # noqa: S311 - reproducible on purpose
        samples: list[Holdings] = []
        begin = time.monotonic()
        settle = min(_SETTLE, seconds / _SAMPLES / 3)
        for number in range(1, _SAMPLES + 1):
            trouble.make(until=begin + seconds * number / _SAMPLES - settle)
            run.wait_registered()
            run.wait_listed()
            time.sleep(settle)
            samples.append(run.holdings())
            minutes, mib = (time.monotonic() - begin) / 60, samples[-1].rss / _MIB
            say(f"{minutes:5.1f} min: {mib:.1f} MiB, {samples[-1].threads} threads")
        crashes = len(run.kubelet.crashes)
    happened = [Figure(f"{what}, times", "", [n]) for what, n in sorted(trouble.made.items())]
    return Section(
        f"{subject.title}: {seconds / 60:g} minutes of trouble",
        subject.command,
        [*happened, Figure("kubelet crashed", "", [crashes]), *_over_time(samples)],
    )


def _over_time(samples: list[Holdings]) -> list[Figure]:
    rss, half = [sample.rss / _MIB for sample in samples], len(samples) // 2
    gained = statistics.median(rss[half:]) - statistics.median(rss[:half])
    figures = [Figure("RSS", "MiB", rss), Figure("RSS, second half over first", "MiB", [gained])]
    return figures + [
        Figure(name, "", [getattr(sample, name) for sample in samples]) for name in _measure.COUNTED
    ]


class _Trouble:
    def __init__(self, run: Run, rng: random.Random) -> None:
        self._run = run
        self._rng = rng
        self.made: Counter[str] = Counter()
        self._kinds: Mapping[str, tuple[int, Callable[[], object]]] = {
            "allocations": (60, self._allocate),
            "changes of devices": (30, self._change),
            "streams lost": (5, self._hang_up),
            "kubelet restarts": (5, self._restart),
        }
        """The weight of each kind of event, and what it does."""

    def make(self, until: float) -> None:
        weights = [weight for weight, _ in self._kinds.values()]
        while time.monotonic() < until:
            (name,) = self._rng.choices([*self._kinds], weights)
            self._kinds[name][1]()
            self.made[name] += 1
            time.sleep(self._rng.uniform(0, _MOMENT))

    def _allocate(self) -> None:
        names = sorted(self._run.kubelet.registered)
        resource = self._rng.choice(names) if names else ""
        devices = self._run.kubelet.devices(resource) if resource else {}
        if healthy := sorted(id_ for id_, health in devices.items() if health == "Healthy"):
            # There may be no connection at the moment, and a device may disappear meanwhile.
            with suppress(grpc.RpcError, LookupError):
                self._run.kubelet.allocate(resource, [self._rng.choice(healthy)])

    def _change(self) -> None:
        if (directory := self._run.touch_dir) is not None:
            path = directory / f"dp-soak-{self._rng.randrange(4)}"
            _subject.toggle_entry(path, self._run.subject.entries)

    def _hang_up(self) -> None:
        for resource in sorted(self._run.kubelet.registered):
            with suppress(LookupError):
                self._run.kubelet.hang_up(resource)

    def _restart(self) -> None:
        self._run.kubelet.restart()
        self._run.wait_registered()
