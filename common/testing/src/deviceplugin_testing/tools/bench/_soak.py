"""A long run of everything that can happen to a plugin, to find leaks."""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import grpc

from deviceplugin_testing.conformance._process import Holdings
from deviceplugin_testing.tools.bench import _measure, _subject
from deviceplugin_testing.tools.bench._figures import Figure, Section
from deviceplugin_testing.tools.bench._plan import Say
from deviceplugin_testing.tools.bench._subject import Run, Subject, running

_MIB: Final = 1024 * 1024
_SAMPLES: Final = 20
"""Number of samples of memory, threads and descriptors."""
_MOMENT: Final = 0.2
"""Most seconds between two events."""
_SETTLE: Final = 3.0
"""Most seconds to wait before a sample, for what is under way to end."""


def soak(subject: Subject, seconds: float, seed: int, say: Say) -> Section:
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
    figures = [Figure("RSS", "MiB", [sample.rss / _MIB for sample in samples])]
    half = len(samples) // 2
    gained = _measure.rss_between(samples[:half], samples[half:])
    figures.append(Figure("RSS, second half over first", "MiB", [gained]))
    return figures + [
        Figure(name, "", [getattr(sample, name) for sample in samples])
        for name in ("threads", "descriptors", "sockets")
    ]


class _Trouble:
    def __init__(self, run: Run, rng: random.Random) -> None:
        self._run = run
        self._rng = rng
        self.made: Counter[str] = Counter()
        self._kinds: list[tuple[str, int, Callable[[], object]]] = [
            ("allocations", 60, self._allocate),
            ("changes of devices", 30, self._change),
            ("streams lost", 5, self._hang_up),
            ("kubelet restarts", 5, self._restart),
        ]

    def make(self, until: float) -> None:
        """Cause random events until then."""
        names = [name for name, _, _ in self._kinds]
        weights = [weight for _, weight, _ in self._kinds]
        acts = {name: act for name, _, act in self._kinds}
        while time.monotonic() < until:
            (name,) = self._rng.choices(names, weights)
            acts[name]()
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
            if path.exists():
                _subject.remove_entry(path)
            else:
                _subject.make_entry(path, self._run.subject.entries)

    def _hang_up(self) -> None:
        for resource in sorted(self._run.kubelet.registered):
            with suppress(LookupError):
                self._run.kubelet.hang_up(resource)

    def _restart(self) -> None:
        self._run.kubelet.restart()
        self._run.wait_registered()
