"""All faults of a document, collected; and advice to somebody who wrote an unknown name."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from deviceplugin.errors import ConfigError

_LONGEST: Final = 400
"""Characters of a key, or of a problem, that a message shows."""
MOST: Final = 100
"""Faults that are kept. Of the others, the number."""
_MOST_NAMES: Final = 40


class InvalidError(Exception):
    """The value at a place is wrong. The fault has been recorded."""


class Faults:
    """All faults of a document. ``locate`` describes a line for messages."""

    def __init__(self, locate: Callable[[int], str]) -> None:
        self._locate = locate
        self._found: dict[tuple[int, str], None] = {}
        self._more = 0
        self.count = 0

    def place(self, line: int, key: str) -> str:
        """Return a place in the document for messages: ``FILE:LINE: KEY``."""
        return _joined(self._locate(line), bounded(key))

    def add(self, line: int, key: str, problem: str) -> InvalidError:
        """Record a fault; duplicates are dropped. A key or problem that is very long is cut."""
        self.count += 1
        text = _joined(self.place(line, key), bounded(problem))
        if not self.full:
            self._found.setdefault((line, text))
        elif (line, text) not in self._found:
            self._more += 1
        return InvalidError(text)

    def apart(self) -> "Faults":
        """Return an empty collection for faults of the same document."""
        return Faults(self._locate)

    @property
    def full(self) -> bool:
        """Whether a further fault is only counted."""
        return len(self._found) >= MOST

    @property
    def lines(self) -> list[str]:
        """The first faults, in the order of the document, and how many more there are."""
        lines = [text for _, text in sorted(self._found, key=lambda found: found[0])]
        return [*lines, *([_joined(self._locate(0), f"{self._more} more")] if self._more else [])]

    def refuse(self) -> None:
        """Raise ConfigError with a line for each fault, if there are any."""
        if self._found:
            raise ConfigError("\n".join(self.lines))


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def bounded(text: str) -> str:
    """Return ``text`` for a message, without its middle if it is very long.

    The end stays, because it says what to do.
    """
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"


def printable(name: str) -> str:
    """Return a name for a message: escaped if anything in it would change the line."""
    return name if name.isprintable() else repr(name)


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the one of ``known`` that is most like ``name``; an empty string if none is."""
    from difflib import get_close_matches  # for mistakes only

    return next(iter(get_close_matches(name, [*known], 1, likeness)), "")


def suggestion(name: str, known: Collection[str], likeness: float = 0.6) -> str:
    """Return advice for somebody who wrote ``name``, which is not ``known``."""
    if near := nearest(name, known, likeness):
        return f"did you mean {bounded(repr(near))}?"
    if not known:
        return "there are none"
    more = ", ..." if len(known) > _MOST_NAMES else ""
    shown = map(printable, [*known][:_MOST_NAMES])
    return f"known are {', '.join(map(bounded, shown))}{more}"
