"""Running independent checks side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from deviceplugin_testing.conformance._check import FIRST_LANE, LAST_LANE, Check, Result
from deviceplugin_testing.conformance._runner import run
from deviceplugin_testing.conformance._trial import Trial

Lane = Sequence[Check]

_HOT_PLUG: Final = "hot-plug"


@dataclass(slots=True)
class InOrder:
    """Passes results to ``say`` in the order of ``checks``, from any thread."""

    checks: Sequence[Check]
    say: Callable[[Result], None]
    results: list[Result] = field(default_factory=list)
    """Results that were passed on."""
    running: list[Check] = field(default_factory=list)
    """Checks that have begun but not ended."""
    _early: dict[str, Result] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def begins(self, check: Check) -> None:
        """Record that ``check`` begins."""
        with self._lock:
            self.running.append(check)

    def ends(self, result: Result) -> None:
        """Record a result, and pass on all results whose turn has come."""
        with self._lock:
            self.running.remove(result.check)
            self._early[result.check.id] = result
            for check in self.checks[len(self.results) :]:
                if check.id not in self._early:
                    return
                self.results.append(self._early.pop(check.id))
                self.say(self.results[-1])

    @property
    def done(self) -> int:
        """Number of checks that have ended."""
        return len(self.results) + len(self._early)


class SideBySide:
    """Runs checks with several processes of the plugin at a time.

    Each lane has its own plugin and kubelet. A lane waits until it can run alone if its plugin does
    not start beside another, or if its trigger may change the devices of all plugins. The last lane
    checks what happened in all others.
    """

    def __init__(self, trial: Trial, order: InOrder, jobs: int) -> None:
        self._trial = trial
        self._order = order
        self._jobs = jobs
        self._problems: list[str] = []
        self.only_one = ""
        """Why the plugin does not start beside another; empty if it does."""

    def run(self, checks: Sequence[Check]) -> None:
        """Run ``checks``.

        Raises:
            BaseException: An unexpected error of one of the checks. The others are given up as soon
                as they wait for anything.
        """
        if self._jobs == 1 or not self._trial.first_comes_up():
            self._run(self._trial, checks)
            return
        lanes = _lanes(checks)
        first, last = lanes.pop(FIRST_LANE, []), lanes.pop(LAST_LANE, [])
        shared = self._trial.subject.trigger_is_shared
        alone = [lanes.pop(_HOT_PLUG)] if shared and _HOT_PLUG in lanes else []
        put_off = self._beside(first, list(lanes.values()))
        self._trial.discard()
        for lane in [*put_off, *alone]:
            self._in_own(lane)
        self._run(self._trial, last)
        self._trial.hopeless = self._trial.hopeless or "".join(self._problems[:1])

    def _run(self, trial: Trial, checks: Lane) -> None:
        run(trial, checks, self._order.ends, self._order.begins)

    def _beside(self, first: Lane, lanes: Sequence[Lane]) -> list[Lane]:
        """Run ``first`` on the trial itself and the others beside it; return those to run later."""
        with ThreadPoolExecutor(self._jobs, thread_name_prefix="conformance") as pool:
            try:
                main = pool.submit(self._run, self._trial, first)
                others = [pool.submit(self._in_own, lane, beside=True) for lane in lanes]
                main.result()
                return [lane for lane, ran in zip(lanes, others, strict=True) if not ran.result()]
            except BaseException:
                self._trial.over.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _in_own(self, lane: Lane, *, beside: bool = False) -> bool:
        """Run a lane on its own plugin, and return whether it ran."""
        with self._trial.beside() as own:
            if beside and (self.only_one or not own.comes_up()):
                self.only_one = self.only_one or own.hopeless
                return False
            self._run(own, lane)
            if own.hopeless:
                self._problems.append(own.hopeless)
            return True


def _lanes(checks: Sequence[Check]) -> dict[str, list[Check]]:
    lanes: dict[str, list[Check]] = {}
    for check in checks:
        lanes.setdefault(check.lane, []).append(check)
    return lanes
