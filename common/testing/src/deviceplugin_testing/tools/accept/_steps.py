"""What ``accept`` does, a section of the report each."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from deviceplugin.checks import (
    Acceptance,
    Container,
    Finding,
    Found,
    Verdict,
    failure,
    ok,
    unknown,
    warning,
)
from deviceplugin_testing.conformance._process import family
from deviceplugin_testing.simulator import RunOptions
from deviceplugin_testing.tools.accept import _container, _render
from deviceplugin_testing.tools.accept._node import MissingRuntimeError, Serving, Trial, TrialError
from deviceplugin_testing.tools.accept._report import Report
from deviceplugin_testing.tools.accept._users import User, sees_all, users

_MOST: Final = 256
"""Devices that are allocated."""
_PROGRAM: Final = 40.0
"""Seconds for one program: without persistence mode, a driver with many GPUs starts slowly."""
_REFUSED: Final = "pods would not get the device, or not start."
_ISSUE: Final = "attach the report to an issue."
_HIDDEN: Final = "processes of other PID namespaces are not visible: run it on the host itself"
_NAMED: Final = 5
_NOTHING: Final = RunOptions({}, (), (), {}, ())


@dataclass(frozen=True, slots=True)
class _Case:
    """A device, and what a container gets for it by a strategy."""

    device: Found
    strategy: str
    given: RunOptions

    @property
    def name(self) -> str:
        return f"{self.device.id} by {self.strategy}"


class Steps:
    """All steps, in the time that ``trial`` has. What is left out is in the report."""

    def __init__(
        self,
        acceptance: Acceptance,
        trial: Trial,
        report: Report,
        *,
        is_idle: bool = False,
    ) -> None:
        self._acceptance, self._trial, self._report = acceptance, trial, report
        self._is_idle = is_idle
        self.devices: list[Found] = []
        self._probe = acceptance.probe or _render.PROBE
        self._judge = acceptance.judge or _render.judge(acceptance.drivers)
        self._passed: list[_Case] = []
        self._without: set[str] = set()

    def run(self, strategies: Sequence[str], *, provokes: bool) -> None:
        """Take all steps."""
        with self._section("Discovery"):
            self._discover()
        cases = []
        for strategy in strategies if self.devices else ():
            with self._section(f"Strategy {strategy}"):
                cases += self._allocate(strategy)
        if self.devices and (compare := self._acceptance.compare):
            with self._section("Comparison with another program"):
                self._report.add(compare(self.devices, self._trial.config))
        with self._section("Users of the devices"):
            self._report.add(self._found_users(cases))
        with self._section("In containers"):
            self._report.add(self._start_all(cases))
        if provokes:
            with self._section("A provoked error"):
                self._report.add(self._provoke())

    @contextmanager
    def _section(self, name: str) -> Iterator[None]:
        self._report.begin(name)
        try:
            yield
        except TrialError as error:
            found = failure(name, str(error), means=_REFUSED, do=_ISSUE)
            self._report.add([found])

    def _discover(self) -> None:
        self.devices, said = self._trial.discover()
        means, do = "see the log events of the plugin.", ""
        self._report.add(warning("the plugin says", line, means=means, do=do) for line in said[:20])
        counts = Counter(one.resource for one in self.devices)
        self._report.add(ok(name, f"{count} devices") for name, count in counts.items())
        bad = [one for one in self.devices if one.reason]
        do = "see its reason; the device is not tried."
        self._report.add(
            warning(one.id, one.reason, means="no pod gets the device.", do=do) for one in bad
        )
        each = {one.id.partition("::")[0]: one for one in self.devices}.values()
        models = Counter(str(one.attributes.get("model", "?")) for one in each)
        self._report.facts["models"] = ", ".join(f"{n} x {name}" for name, n in models.items())

    def _allocate(self, strategy: str) -> list[_Case]:
        wanted = [one for one in self.devices if not one.reason]
        if len(wanted) > _MOST:
            self._report.add([unknown("devices", f"only the first {_MOST} are allocated")])
        cases: dict[str, _Case | None] = {}
        number = 0
        with self._trial.serving(strategy, self.devices) as serving:
            for device in wanted[:_MOST]:
                if self._trial.left() < 0:
                    self._report.add([unknown(device.id, "not allocated: the time is over")])
                    break
                answer = self._answer(serving, device)
                number += answer is not None
                hardware = device.id.partition("::")[0]  # of which it may be a share
                if answer and hardware not in cases:
                    cases[hardware] = self._resolved(device, strategy, answer)
        self._report.add([ok("Allocate", f"{number} of {len(wanted)} devices")] if number else [])
        return [case for case in cases.values() if case]

    def _answer(self, serving: Serving, device: Found) -> RunOptions | None:
        try:
            return serving.allocate(device)
        except TrialError as error:
            self._report.add([failure(device.id, str(error), means=_REFUSED, do=_ISSUE)])
            return None

    def _resolved(self, device: Found, strategy: str, answer: RunOptions) -> _Case | None:
        try:
            given = self._trial.resolved(answer)
        except MissingRuntimeError as error:
            if strategy not in self._without:  # the same for each device
                self._report.add([unknown("in containers", str(error))])
            self._without.add(strategy)
            return None
        except TrialError as error:
            self._report.add([failure(device.id, str(error), means=_REFUSED, do=_ISSUE)])
            return None
        numbers = {
            "device nodes": given.devices,
            "mounts": given.mounts,
            "hooks": given.hooks,
            "variables": given.envs,
        }
        text = ", ".join(f"{len(each)} {name}" for name, each in numbers.items())
        self._report.add([ok(f"{device.id} gets", text)])
        return _Case(device, strategy, given)

    def _found_users(self, cases: Iterable[_Case]) -> Iterator[Finding]:
        if not sees_all():
            yield unknown("processes", _HIDDEN)
        nodes = {node.host_path for case in cases for node in case.given.devices}
        own = {one for one in nodes if re.fullmatch(self._acceptance.node, one)}
        for user in users(own, {*family(os.getpid())}):
            yield ok(str(user), f"has open {', '.join(sorted(user.nodes))}")

    def _blockers(self, case: _Case, *, strict: bool = False) -> list[User]:
        """Return who uses the device: computes, or if that is ``strict``, has it open at all."""
        nodes = {node.host_path for node in case.given.devices}
        own = {one for one in nodes if re.fullmatch(self._acceptance.node, one)}
        computing = {one for one in nodes if re.fullmatch(self._acceptance.computing, one)}
        holders = users(own | computing, {*family(os.getpid())})
        found = []
        for user in holders if self._acceptance.computing else ():
            computes = not computing or bool(user.nodes & computing)
            is_other = user.name not in self._acceptance.bystanders
            if user.nodes & own and is_other and (computes or strict):
                found.append(user)
        return found

    def _start_all(self, cases: Sequence[_Case]) -> Iterator[Finding]:
        if not cases:
            yield unknown("programs", "no strategy gives a device that could be tried")
            return
        empty = self._trial.folder / "empty.py"
        empty.write_text("print('{}')\n")
        if why := _container.run(_NOTHING, empty, (), self._trial.folder, _PROGRAM).problem:
            yield unknown("programs", why)
            return
        if self._acceptance.computing and not (self._is_idle or sees_all()):
            yield unknown("programs", f"{_HIDDEN}, or add --assume-idle if nobody uses the devices")
            return
        first = {case.strategy: case for case in reversed(cases)}.values()
        for case in sorted(cases, key=lambda case: case not in first):
            yield from self._start(case)

    def _start(self, case: _Case) -> Iterator[Finding]:
        if self._trial.left() < 1:
            yield unknown(case.name, "not tried: the time is over")
            return
        if blockers := self._blockers(case):
            yield unknown(case.name, f"not tried: in use by {_named(blockers)}")
            return
        result = self._result(case.given)
        if why := result.get("error"):
            yield failure(case.name, str(why), means=_REFUSED, do=_ISSUE)
            return
        found = [*self._judge(case.device, result)]
        if not any(one.verdict == Verdict.FAILURE for one in found):
            self._passed.append(case)
        for one in found:
            yield replace(one, looked_at=f"{case.name}: {one.looked_at}")

    def _provoke(self) -> Iterator[Finding]:
        provoke = self._acceptance.provoke
        if not sees_all():
            yield unknown("--provoke", _HIDDEN)
            return
        for case in self._passed:
            if blockers := self._blockers(case, strict=True):
                yield unknown(case.name, f"not provoked: opened by {_named(blockers)}")
            elif self._trial.left() < _PROGRAM:
                yield unknown(case.name, "not provoked: the time is over")
                return
            elif provoke:
                yield from self._provoked(case, provoke)
                return
        if not self._passed:
            yield unknown("--provoke", "no program ran on a device before")

    def _provoked(
        self, case: _Case, provoke: Callable[[Container], Iterable[Finding]]
    ) -> Iterator[Finding]:
        with self._trial.serving(case.strategy, [case.device]) as serving:
            given = self._trial.resolved(serving.allocate(case.device))
            fresh = replace(case, given=given)
            if blockers := self._blockers(fresh, strict=True):
                yield unknown(case.name, f"not provoked: opened by {_named(blockers)}")
                return
            yield from provoke(
                Container(
                    device=case.device,
                    run=lambda *words: self._result(given, *words),
                    metrics=serving.metrics,
                    log=serving.log,
                    is_healthy=lambda: serving.is_healthy(case.device),
                    eventually=serving.eventually,
                )
            )

    def _result(self, given: RunOptions, *words: str) -> Mapping[str, Any]:
        timeout = max(1.0, min(_PROGRAM, self._trial.left()))
        result = _container.run(given, self._probe, words, self._trial.folder, timeout)
        return {"error": result.problem} if result.problem else result.output


def _named(found: Sequence[User]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(map(str, found[:_NAMED])) + more
