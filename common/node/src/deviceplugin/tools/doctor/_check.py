"""The checks of the doctor itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deviceplugin.checks import Finding, Node


@dataclass(frozen=True, slots=True)
class Check:
    """Examines one topic, within a few seconds, and changes nothing."""

    name: str
    title: str
    run: Callable[[Node], Iterable[Finding]]
    """It may raise OSError, which becomes a finding."""
