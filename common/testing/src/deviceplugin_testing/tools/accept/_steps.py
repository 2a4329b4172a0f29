"""What ``accept`` does. A device that is not tried is in the report."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from deviceplugin_testing.simulator import RunOptions
from deviceplugin_testing.tools.accept import _container
from deviceplugin_testing.tools.accept._node import MissingRuntimeError, Trial, TrialError
from deviceplugin_testing.tools.accept._report import Report
from deviceplugin_testing.tools.accept._users import sees_all, users

_MOST: Final = 256
"""Devices that are allocated."""
_REFUSED: Final = "pods would not get the device, or not start."
_ISSUE: Final = "attach the report to an issue."
_HIDDEN: Final = "not all processes are visible: run it as root on the host itself"
_NAMED: Final = 5
_NOTHING: Final = RunOptions({}, (), (), {}, ())
RENDER: Final = _container.INIT.with_name("_render.py")


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
    """All steps."""

    def __init__(self, acceptance: Acceptance, trial: Trial, report: Report) -> None:
        self._acceptance, self._trial, self._report = acceptance, trial, report
        self._devices: list[Found] = []
        self._cases: list[_Case] = []
        self._passed: list[_Case] = []

    def run(self, strategies: Sequence[str], *, provokes: bool) -> None:
        """Take all steps."""
        self._take("discovery", self._discover())
        if not self._devices:
            return
        for strategy in strategies:
            self._take("allocation", self._allocate(strategy))
        if compare := self._acceptance.compare:
            self._take("comparison", compare(self._devices, self._trial.config))
        self._take("users", self._users())
        self._take("container", self._start_all())
        if provokes:
            self._take("provocation", self._provoke())

    def _take(self, step: str, findings: Iterable[Finding]) -> None:
        try:
            self._report.add(step, findings)
        except TrialError as error:
            self._report.add(step, [failure("plugin", str(error), means=_REFUSED, do=_ISSUE)])

    def _discover(self) -> Iterator[Finding]:
        self._devices, said = self._trial.discover()
        means, do = "see the log events of the plugin.", ""
        yield from (warning("the plugin says", line, means=means, do=do) for line in said[:20])
        if not self._devices:
            yield failure("devices", "none", means="there is nothing to try.", do="see the doctor.")
        for name, count in Counter(one.resource for one in self._devices).items():
            yield ok(name, f"{count} devices")
        for one in self._devices:
            if one.reason:
                yield warning(one.id, one.reason, means="no pod gets it.", do="see its reason.")
        each = {one.hardware: one for one in self._devices}.values()
        models = Counter(str(one.attributes.get("model", "?")) for one in each)
        yield ok("models", ", ".join(f"{count} x {name}" for name, count in models.items()))

    def _allocate(self, strategy: str) -> Iterator[Finding]:
        wanted = [one for one in self._devices if not one.reason]
        if len(wanted) > _MOST:
            yield unknown(strategy, f"only the first {_MOST} of {len(wanted)} are allocated")
        answers: dict[str, tuple[Found, RunOptions]] = {}
        number = 0
        with self._trial.serving(strategy, self._devices) as serving:
            for device in wanted[:_MOST]:
                try:
                    answers.setdefault(device.hardware, (device, serving.allocate(device)))
                    number += 1
                except TrialError as error:
                    yield failure(device.id, str(error), means=_REFUSED, do=_ISSUE)
            yield from self._resolve(strategy, answers.values())
        yield ok(strategy, f"{number} of {len(wanted)} devices allocated")

    def _resolve(
        self, strategy: str, answers: Iterable[tuple[Found, RunOptions]]
    ) -> Iterator[Finding]:
        for device, answer in answers:
            try:
                case = _Case(device, strategy, self._trial.resolved(answer))
            except MissingRuntimeError as error:
                yield unknown(strategy, f"no container: {error}")
                return  # the same for each device
            except TrialError as error:
                yield failure(device.id, str(error), means=_REFUSED, do=_ISSUE)
                continue
            self._cases.append(case)
            given = case.given
            counts = {"nodes": given.devices, "mounts": given.mounts, "hooks": given.hooks}
            text = [f"{len(each)} {name}" for name, each in counts.items()]
            yield ok(case.name, ", ".join([*text, f"{len(given.envs)} variables"]))

    def _nodes(self, pattern: str, *cases: _Case) -> set[str]:
        nodes = {node.host_path for case in cases for node in case.given.devices}
        return {one for one in nodes if re.fullmatch(pattern, one)}

    def _users(self) -> Iterator[Finding]:
        if not sees_all():
            yield unknown("processes", _HIDDEN)
        for user in users(self._nodes(self._acceptance.node, *self._cases)):
            text = f"has open {', '.join(sorted(user.nodes))}"
            if user.name in self._acceptance.bystanders:
                text += f"; spared for its name, which is no proof: see /proc/{user.pid}/exe"
            yield ok(str(user), text)

    def _blockers(self, case: _Case, *, strict: bool = False) -> str:
        """Return who computes on a device, or if that is ``strict``, has it open at all."""
        own = self._nodes(self._acceptance.node, case)
        computing = self._nodes(self._acceptance.computing, case)
        found = [
            str(user)
            for user in users(own | computing)
            if user.nodes & own
            and (strict or not computing or user.nodes & computing)
            and user.name not in self._acceptance.bystanders
        ]
        more = [f"{len(found) - _NAMED} more"] if len(found) > _NAMED else []
        return ", ".join([*found[:_NAMED], *more])

    def _start_all(self) -> Iterator[Finding]:
        if not self._cases:
            yield unknown("programs", "no strategy gives a device that could be tried")
            return
        empty = self._trial.folder / "empty.py"
        empty.write_text("print('{}')\n")
        if why := _container.run(_NOTHING, empty, (), self._trial.folder).get("error"):
            do = "run it on the host itself: CAP_SYS_ADMIN and namespaces are needed"
            yield unknown("programs", why, do)
            return
        if self._acceptance.computing and not sees_all():
            yield unknown("programs", _HIDDEN)
            return
        first = {case.strategy: case for case in reversed(self._cases)}.values()
        for case in sorted(self._cases, key=lambda case: case not in first):
            yield from self._start(case)

    def _start(self, case: _Case) -> Iterator[Finding]:
        if self._acceptance.computing and (who := self._blockers(case)):
            yield unknown(case.name, f"not tried: in use by {who}")
            return
        found = [*self._judged(case.device, self._run(case.given))]
        if not any(one.verdict == Verdict.FAILURE for one in found):
            self._passed.append(case)
        for one in found:
            yield replace(one, looked_at=f"{case.name}: {one.looked_at}")

    def _run(self, given: RunOptions, *words: str) -> Mapping[str, Any]:
        return _container.run(given, self._acceptance.probe or RENDER, words, self._trial.folder)

    def _judged(self, device: Found, result: Mapping[str, Any]) -> Iterable[Finding]:
        if why := result.get("error"):
            return [failure("program", str(why), means=_REFUSED, do=_ISSUE)]
        if judge := self._acceptance.judge:
            return judge(device, result)
        return render_nodes(result["nodes"], self._acceptance.drivers)

    def _provoke(self) -> Iterator[Finding]:
        if not self._passed:
            yield unknown("--provoke", "no program ran on a device before")
        for case in self._passed:
            if who := self._blockers(case, strict=True):
                yield unknown(case.name, f"not provoked: opened by {who}")
            else:
                yield from self._provoked(case)
                return

    def _provoked(self, case: _Case) -> Iterator[Finding]:
        with self._trial.serving(case.strategy, [case.device]) as serving:
            given = self._trial.resolved(serving.allocate(case.device))
            if who := self._blockers(replace(case, given=given), strict=True):
                yield unknown(case.name, f"not provoked: opened by {who}")
            elif provoke := self._acceptance.provoke:
                yield from provoke(
                    Container(
                        device=case.device,
                        run=lambda *words: self._run(given, *words),
                        metrics=serving.metrics,
                        log=serving.log,
                        is_healthy=lambda: serving.is_healthy(case.device),
                        eventually=serving.eventually,
                    )
                )


def render_nodes(nodes: Mapping[str, str], drivers: frozenset[str]) -> Iterator[Finding]:
    """Judge what ``_render.py`` says: each version must be of one of ``drivers``."""
    if not nodes:
        yield failure("render node", "none", means=_REFUSED, do=_ISSUE)
    for path, text in nodes.items():
        if text.partition(" ")[0] in drivers:
            yield ok(path, text)
        else:
            means = "a pod would not get the device that it asked for."
            yield failure(path, text, means=means, do=_ISSUE)
