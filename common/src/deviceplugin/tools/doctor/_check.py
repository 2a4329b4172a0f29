"""What a check of the doctor is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deviceplugin.checks import Finding, Node


@dataclass(frozen=True, slots=True)
class Check:
    """Looks at one topic, within a few seconds, and changes nothing."""

    name: str
    title: str
    look: Callable[[Node], Iterable[Finding]]
    """May raise OSError, which is a finding of its own."""
