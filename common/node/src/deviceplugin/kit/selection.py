"""Choosing devices by patterns in two settings: which to include, and which to exclude."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which devices are chosen. The patterns are those of shells: ``*``, ``?`` and ``[...]``."""

    include: Sequence[str] = ()
    """Patterns of which one must match; without any, all devices are chosen."""
    exclude: Sequence[str] = ()
    """Patterns of which none may match."""

    def has(self, names: Iterable[str]) -> bool:
        """Return whether the device that has all of these names is chosen."""
        names = list(names)
        return (not self.include or _any(self.include, names)) and not _any(self.exclude, names)

    def shortfalls(self, found: Iterable[Iterable[str]]) -> list[str]:
        """Return a message if none of the devices that were found is chosen, by their names.

        For ``Plugin.shortfalls``.
        """
        choices = [self.has(names) for names in found]
        if any(choices) or not choices:
            return []
        return [f"include and exclude choose none of the {len(choices)} that are here"]


def _any(patterns: Sequence[str], names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
