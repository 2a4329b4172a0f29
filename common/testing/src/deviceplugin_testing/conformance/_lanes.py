"""Running checks one after the other and side by side, with a progress line."""

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock, Thread
from types import TracebackType
from typing import Final, Self, TextIO

import grpc

from deviceplugin._platform import rpc
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin_testing.conformance._check import (
    FIRST_LANE,
    LAST_LANE,
    Check,
    CheckRun,
    Failed,
    NotApplicable,
    Result,
    Verdict,
)
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.simulator import (
    CallError,
    ContainerStartError,
    KubeletCrashed,
    KubeletStopped,
)


def run(
    trial: CheckRun,
    checks: Sequence[Check],
    say: Callable[[Result], None],
    begins: Callable[[Check], None] = lambda _: None,
) -> list[Result]:
    """Run ``checks`` in order, and return the results; call ``begins`` and ``say`` for each."""
    results = []
    for check in checks:
        begins(check)
        begin = time.monotonic()
        verdict, text = _run(trial, check)
        if verdict is Verdict.FAIL and check.disturbing and not trial.hopeless:
            trial.discard()
        result = Result(check, verdict, text, time.monotonic() - begin)
        results.append(result)
        say(result)
    return results


def _run(trial: CheckRun, check: Check) -> tuple[Verdict, str]:
    try:
        return Verdict.PASS, check.run(trial)
    except NotApplicable as reason:
        return Verdict.NOT_APPLICABLE, str(reason)
    except Failed as failure:
        return Verdict.FAIL, str(failure)
    except grpc.RpcError as error:
        return Verdict.FAIL, f"a call failed: {rpc.status_text(error)}"
    except (KubeletCrashed, KubeletStopped) as end:
        trial.discard()
        return Verdict.NOT_APPLICABLE, str(end)
    except (CallError, ContainerStartError, LookupError, TimeoutError) as error:
        return Verdict.FAIL, str(error)


Lane = Sequence[Check]

_HOT_PLUG: Final = "hot-plug"


@dataclass(slots=True)
class InOrder:
    """Passes results to ``say`` in the order of ``checks``, from any thread."""

    checks: Sequence[Check]
    say: Callable[[Result], None]
    results: list[Result] = field(default_factory=list)
    running: list[Check] = field(default_factory=list)
    """Checks that have begun but not ended."""
    _early: dict[str, Result] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def begins(self, check: Check) -> None:
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
        """Run ``checks``. After an unexpected error of one, others are given up as they wait."""
        if self._jobs == 1 or not self._trial.comes_up():
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


_EVERY: Final = 0.5
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Shows what is running, and for how long, if ``terminal`` is one; nothing otherwise."""

    def __init__(self, order: InOrder, terminal: TextIO, clock: Clock = MONOTONIC) -> None:
        self._order = order
        self._terminal = terminal if terminal.isatty() else None
        self._waiter = Waiter(clock)
        self._begin = clock.now()
        self._lock = Lock()
        self._thread = Thread(target=self._run, name="conformance-progress", daemon=True)

    def __enter__(self) -> Self:
        if self._terminal:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._waiter.end()
        if self._terminal:
            self._thread.join()
            self._show("")

    def print(self, text: str) -> None:
        """Print ``text`` above the progress line."""
        with self._lock:
            self._write("")
            print(text, flush=True)  # noqa: T201 - what the command is for

    def _run(self) -> None:
        for _ in self._waiter.ticks(_EVERY):
            self._show(self._line())

    def _line(self) -> str:
        order = self._order
        names = ", ".join(check.id for check in list(order.running))
        seconds = self._waiter.clock.now() - self._begin
        return f"  {seconds:.0f} s, {order.done} of {len(order.checks)} checks done; now: {names}"

    def _show(self, line: str) -> None:
        with self._lock:
            self._write(line)

    def _write(self, line: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._terminal.write(_CLEAR + line[:width])
            self._terminal.flush()
