"""Checks, their results, and what the checks of a run share."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from threading import Event, RLock
from typing import Any, Final, Self, TypeVar, cast

from deviceplugin_testing.conformance._subject import Limits, Subject

_Trial = TypeVar("_Trial")

PAGE: Final = "common/docs/conformance.md"
"""The page that has a section for each group."""


FIRST_LANE: Final = "first"
"""The lane of checks of the plugin's first start."""
NO_DEVICES: Final = "no healthy device is listed"
"""Why a check of allocations is not applicable."""
LAST_LANE: Final = "last"
"""The lane of checks of what happened in all other lanes."""


class Failed(Exception):  # noqa: N818 - reads as what happened
    """The plugin did something wrong. The message says what it did."""


class NotApplicable(Exception):  # noqa: N818 - reads as what happened
    """There is nothing to check. The message says why."""


class Abandoned(Exception):  # noqa: N818 - reads as what happened
    """The run was given up while a check was waiting."""


class Verdict(StrEnum):
    """The verdict of a check."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True, slots=True)
class Check:
    """A property of the plugin that a kubelet relies on."""

    group: str
    """The group's title, which is also a heading of the page."""
    id: str
    """``GROUP.NAME``, for ``--only``."""
    title: str
    """What is checked, as a statement about the plugin."""
    why: str
    """What happens on a node with a plugin that fails, in one line."""
    run: Callable[[Any], str]
    """Is given the trial. Returns what the plugin did; raises ``Failed`` or ``NotApplicable``."""
    disturbing: bool
    """Whether a plugin that failed may still be recovering."""
    lane: str = ""
    """Checks of one lane run one after the other, on one plugin. Lanes are independent."""

    @property
    def link(self) -> str:
        """The section of the documentation about it."""
        return f"{PAGE}#{self.group.lower().replace(' ', '-')}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check."""

    check: Check
    verdict: Verdict
    text: str
    """What the plugin did, or why the check does not apply."""
    seconds: float


class CheckGroup:
    """The checks of one module, in their order there."""

    def __init__(self, name: str, title: str, *, disturbing: bool = False, lane: str = "") -> None:
        self.name = name
        self.title = title
        self._lane = lane or name
        self._disturbing = disturbing
        self.checks: list[Check] = []

    def check(
        self, name: str, title: str, *, why: str, apart: bool = False
    ) -> Callable[[Callable[[_Trial], str]], Callable[[_Trial], str]]:
        """Make a check of the decorated function. With ``apart``, it gets its own lane."""

        def add(run: Callable[[_Trial], str]) -> Callable[[_Trial], str]:
            id_ = f"{self.name}.{name}"
            lane = id_ if apart else self._lane
            self.checks.append(Check(self.title, id_, title, why, run, self._disturbing, lane))
            return run

        return add


_T = TypeVar("_T")


class Findings:
    """Plays each scenario once in a run. The first caller plays it, and others wait for it."""

    def __init__(self) -> None:
        self._locks: defaultdict[Callable[..., Any], RLock] = defaultdict(RLock)
        self._found: dict[Callable[..., Any], object] = {}
        self._reported: set[Callable[..., Any]] = set()

    def once(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T:
        """Return what ``scenario`` found. ``name`` identifies the scenario.

        Raises:
            Failed: It failed, and no check has reported that yet.
            NotApplicable: It raised that, or it failed and a check has reported that.
        """
        with self._locks[name]:
            found = self._play(scenario, name)
            if isinstance(found, Failed) and name not in self._reported:
                self._reported.add(name)
                raise Failed(str(found)) from found
        return self._result(found)

    def before(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T:
        """Return what ``scenario`` found; raise ``NotApplicable`` if it failed."""
        with self._locks[name]:
            return self._result(self._play(scenario, name))

    def _play(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T | Exception:
        if name not in self._found:
            try:
                self._found[name] = scenario()
            except (Failed, NotApplicable) as outcome:
                self._found[name] = outcome
        return cast("_T | Exception", self._found[name])

    def _result(self, found: _T | Exception) -> _T:
        if isinstance(found, Failed):
            raise NotApplicable(f"not seen, because: {found}") from found
        if isinstance(found, NotApplicable):
            raise NotApplicable(str(found)) from found
        return cast("_T", found)


class CheckRun:
    """One run of checks, and the state that they share."""

    def __init__(self, subject: Subject, limits: Limits, seed: int) -> None:
        self.subject = subject
        self.limits = limits
        self.seed = seed
        self.hopeless = ""
        """Why the plugin is not started any more; empty if it is."""
        self.over = Event()
        """Set when the run is given up. Then whatever waits raises ``Abandoned``."""
        self._nodes = ExitStack()
        self._findings = Findings()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """End the plugin and its node; the next check gets new ones."""
        self._nodes.close()

    def once(self, scenario: Callable[[Self], _T]) -> _T:
        """Return what ``scenario`` found. It is played once in a run; see ``Findings.once``."""
        return self._findings.once(lambda: scenario(self), scenario)

    def once_before(self, scenario: Callable[[Self], _T]) -> _T:
        """Return what ``scenario`` found, for a check that only depends on it; see ``before``."""
        return self._findings.before(lambda: scenario(self), scenario)

    def is_fine(self, scenario: Callable[[Self], object]) -> bool:
        """Return whether ``scenario`` succeeded."""
        try:
            self.once_before(scenario)
        except NotApplicable:
            return False
        return True
