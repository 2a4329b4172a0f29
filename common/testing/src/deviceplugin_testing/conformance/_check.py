"""Checks and their results."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

_Trial = TypeVar("_Trial")

PAGE: Final = "common/docs/conformance.md"
"""The page that has a section for each group."""


FIRST_LANE: Final = "first"
"""The lane of checks of the plugin's first start."""
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


class Group:
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
