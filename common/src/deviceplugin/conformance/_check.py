"""What a check is, and what comes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deviceplugin.conformance._trial import Trial

PAGE: Final = "common/docs/conformance.md"
"""Where each group has a section of its own."""


FIRST_LANE: Final = "first"
"""Of what looks at the plugin's first start."""
LAST_LANE: Final = "last"
"""Of what looks at all that happened in the others."""


class Failed(Exception):  # noqa: N818 - reads as what happened
    """The plugin did what it should not; the message says what it did."""


class NotApplicable(Exception):  # noqa: N818 - reads as what happened
    """There is nothing to check; the message says why."""


class Abandoned(Exception):  # noqa: N818 - reads as what happened
    """The run is over, and what was waited for does not matter any more."""


class Verdict(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a kubelet relies on."""

    group: str
    """The group's title, which is also a heading of the page."""
    id: str
    """``GROUP.NAME``, for ``--only``."""
    title: str
    """What is checked, as a statement about the plugin."""
    why: str
    """What happens on a node with a plugin that fails, in one line."""
    run: Callable[["Trial"], str]
    """Returns what the plugin did; raises ``Failed`` or ``NotApplicable``."""
    disturbing: bool
    """Whether a plugin that failed may still be busy getting over it."""
    lane: str = ""
    """Checks of one lane run one after the other, on one plugin; lanes do not need each other."""

    @property
    def link(self) -> str:
        """Where the documentation says more."""
        return f"{PAGE}#{self.group.lower().replace(' ', '-')}"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check."""

    check: Check
    verdict: Verdict
    text: str
    """What the plugin did, or why the check does not apply."""
    seconds: float


class Group:
    """The checks of one module, in the order in which they stand there."""

    def __init__(self, name: str, title: str, *, disturbing: bool = False, lane: str = "") -> None:
        self.name = name
        self.title = title
        self._lane = lane or name
        self._disturbing = disturbing
        self.checks: list[Check] = []

    def check(
        self, name: str, title: str, *, why: str, apart: bool = False
    ) -> Callable[[Callable[["Trial"], str]], Callable[["Trial"], str]]:
        """Make a check of the decorated function; ``apart`` it has a lane of its own."""

        def add(run: Callable[["Trial"], str]) -> Callable[["Trial"], str]:
            id_ = f"{self.name}.{name}"
            lane = id_ if apart else self._lane
            self.checks.append(Check(self.title, id_, title, why, run, self._disturbing, lane))
            return run

        return add
