"""A long run of everything that happens to a plugin: does it stay what it was?"""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import grpc

from deviceplugin.conformance._proc import Holdings
from deviceplugin.tools.bench import _measure
from deviceplugin.tools.bench._figures import Figure, Section
from deviceplugin.tools.bench._plan import Say
from deviceplugin.tools.bench._subject import Run, Subject, running

_MIB: Final = 1024 * 1024
_LOOKS: Final = 20
"""How often memory and all else is looked at."""
_MOMENT: Final = 0.2
"""Seconds between what happens, at most."""
_SETTLE: Final = 3.0
"""Seconds for what is under way to end before a look, at most."""


def soak(subject: Subject, seconds: float, seed: int, say: Say) -> Section:
    """Let random things happen to ``subject`` for ``seconds``, and look at it now and then.

    Allocations, changes of devices, lost streams and restarts of the kubelet, by ``seed``. What
    it has at the first look, when all of them have happened, is what the later looks should find.
    """
    with running(subject) as run:
        run.wait_listed()
        trouble = _Trouble(run, random.Random(seed))  # noqa: S311 - reproducible on purpose
        looks: list[Holdings] = []
        begin = time.monotonic()
        settle = min(_SETTLE, seconds / _LOOKS / 3)
        for number in range(1, _LOOKS + 1):
            trouble.make(until=begin + seconds * number / _LOOKS - settle)
            run.wait_registered()
            run.wait_listed()
            time.sleep(settle)
            looks.append(run.holdings())
            minutes, mib = (time.monotonic() - begin) / 60, looks[-1].rss / _MIB
            say(f"{minutes:5.1f} min: {mib:.1f} MiB, {looks[-1].threads} threads")
        crashes = len(run.kubelet.crashes)
    happened = [Figure(f"{what}, times", "", [n]) for what, n in sorted(trouble.made.items())]
    return Section(
        f"{subject.title}: {seconds / 60:g} minutes of trouble",
        subject.command,
        [*happened, Figure("kubelet crashed", "", [crashes]), *_over_time(looks)],
    )


def _over_time(looks: list[Holdings]) -> list[Figure]:
    figures = [Figure("RSS", "MiB", [look.rss / _MIB for look in looks])]
    half = len(looks) // 2
    gained = _measure.rss_between(looks[:half], looks[half:])
    figures.append(Figure("RSS, second half over first", "MiB", [gained]))
    return figures + [
        Figure(name, "", [getattr(look, name) for look in looks])
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
        """Let things happen until then."""
        names = [name for name, _, _ in self._kinds]
        weights = [weight for _, weight, _ in self._kinds]
        acts = {name: act for name, _, act in self._kinds}
        while time.monotonic() < until:
            (name,) = self._rng.choices(names, weights)
            acts[name]()
            self.made[name] += 1
            time.sleep(self._rng.uniform(0, _MOMENT))

    def _allocate(self) -> None:
        resource = min(self._run.kubelet.registered, default="")
        devices = self._run.kubelet.devices(resource) if resource else {}
        if healthy := sorted(id_ for id_, health in devices.items() if health == "Healthy"):
            # Between two connections there is nobody to ask, and a device may go meanwhile.
            with suppress(grpc.RpcError, LookupError):
                self._run.kubelet.allocate(resource, [self._rng.choice(healthy)])

    def _change(self) -> None:
        if (directory := self._run.touch_dir) is not None:
            path = directory / f"dp-soak-{self._rng.randrange(4)}"
            path.unlink() if path.exists() else path.touch()

    def _hang_up(self) -> None:
        for resource in sorted(self._run.kubelet.registered):
            with suppress(LookupError):
                self._run.kubelet.hang_up(resource)

    def _restart(self) -> None:
        self._run.kubelet.restart()
        self._run.wait_registered()
