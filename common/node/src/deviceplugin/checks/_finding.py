"""The findings of a check."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Verdict(StrEnum):
    """How bad a finding is, the worst first."""

    FAILURE = "failure"
    """Devices are unavailable, or will be lost."""
    WARNING = "warning"
    """It works for now, or only a part does not."""
    UNKNOWN = "unknown"
    """It could not be examined from here."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one thing that a check examined."""

    verdict: Verdict
    looked_at: str
    """The thing: a path, or a name for it."""
    found: str
    means: str = ""
    """The consequence; empty if there is none."""
    do: str = ""
    """What to do about it; empty if there is nothing to do."""


def ok(looked_at: Path | str, found: str) -> Finding:
    """Return a finding without consequences."""
    return Finding(Verdict.OK, str(looked_at), found)


def unknown(looked_at: Path | str, found: str, do: str = "") -> Finding:
    """Return that something could not be examined; ``do`` is what would make it possible."""
    return Finding(Verdict.UNKNOWN, str(looked_at), found, do=do)


def warning(looked_at: Path | str, found: str, *, means: str, do: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(Verdict.WARNING, str(looked_at), found, means, do)


def failure(looked_at: Path | str, found: str, *, means: str, do: str) -> Finding:
    """Return a finding that must be fixed."""
    return Finding(Verdict.FAILURE, str(looked_at), found, means, do)
