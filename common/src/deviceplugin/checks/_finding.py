"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Verdict(StrEnum):
    """How bad a finding is, the worst first."""

    FAILURE = "failure"
    """Devices cannot be had, or will be lost."""
    WARNING = "warning"
    """It works now, or only part of it does not."""
    UNKNOWN = "unknown"
    """It could not be looked at from here."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, in plain words."""

    verdict: Verdict
    looked_at: str
    """A path, or what else it is."""
    found: str
    means: str = ""
    """What follows from it; empty where nothing does."""
    do: str = ""
    """What to do about it; empty where there is nothing to do."""


def ok(looked_at: Path | str, found: str) -> Finding:
    """Return a finding that nothing follows from."""
    return Finding(Verdict.OK, str(looked_at), found)


def unknown(looked_at: Path | str, found: str, do: str = "") -> Finding:
    """Return that something could not be looked at, and ``do`` what would make it possible."""
    return Finding(Verdict.UNKNOWN, str(looked_at), found, do=do)


def warning(looked_at: Path | str, found: str, *, means: str, do: str) -> Finding:
    """Return a finding to think about."""
    return Finding(Verdict.WARNING, str(looked_at), found, means, do)


def failure(looked_at: Path | str, found: str, *, means: str, do: str) -> Finding:
    """Return a finding to do something about."""
    return Finding(Verdict.FAILURE, str(looked_at), found, means, do)
