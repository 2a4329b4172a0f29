"""All faults of a document, collected; and advice to somebody who wrote an unknown name."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from deviceplugin.errors import ConfigError

_LONGEST: Final = 400
"""Characters of a key, or of a problem, that a message shows."""
MOST: Final = 100
"""Faults that are kept. Of the others, the number."""
_MOST_NAMES: Final = 40


class InvalidError(Exception):
    """The value at a place is wrong. The fault has been recorded."""


class InvalidEntriesError(ConfigError):
    """Entries of a list are wrong, and nothing else. ``value`` is what is left without them."""

    def __init__(self, message: str, value: Any) -> None:
        super().__init__(message)
        self.value = value


class Faults:
    """All faults of a document. ``locate`` describes a line for messages.

    Those of entries that may be skipped one by one are in collections of their own.
    """

    def __init__(self, locate: Callable[[int], str], kept: list[int] | None = None) -> None:
        self._locate = locate
        self.found: dict[tuple[int, str], str] = {}
        """Line and message of each that is kept, with its key."""
        self.more = 0
        """How many are not kept."""
        self.count = 0
        self._kept = kept or [0]
        """How many are kept by all that share this: those of entries do."""
        self._of_entries: list[Faults] = []
        self._kept_of_entries = [0]

    def place(self, line: int, key: str) -> str:
        """Return a place in the document for messages: ``FILE:LINE: KEY``."""
        return _joined(self._locate(line), bounded(key))

    def add(self, line: int, key: str, problem: str) -> InvalidError:
        """Record a fault; duplicates are dropped. A key or problem that is very long is cut."""
        self.count += 1
        text = _joined(self.place(line, key), bounded(problem))
        if (line, text) not in self.found:
            if self.terse and self.found:
                self.more += 1
            else:
                self.found[line, text] = key
                self._kept[0] += 1
        return InvalidError(text)

    def apart(self) -> "Faults":
        """Return an empty collection for faults of the same document."""
        return Faults(self._locate)

    def of_entry(self, key: str) -> "Faults":
        """Return a collection for the entry at ``key``, with those that it has already.

        Of all entries together ``MOST`` are kept, and of each at least one.
        """
        own = Faults(self._locate, self._kept_of_entries)
        for fault, at in [*self.found.items()]:
            if not key or at == key or at.startswith((f"{key}.", f"{key}[")):
                own.found[fault] = self.found.pop(fault)
                own.count += 1
        self._of_entries.append(own)
        return own

    @property
    def terse(self) -> bool:
        """Whether no more are kept, so that a further fault needs no advice, which takes time."""
        return self._kept[0] >= MOST

    @property
    def lines(self) -> list[str]:
        """The first faults, in the order of the document, and how many more there are."""
        return self._lines([self, *self._of_entries])

    @property
    def lines_without_entries(self) -> list[str]:
        """The same without those of entries that may be skipped."""
        return self._lines([self])

    def _lines(self, parts: "Sequence[Faults]") -> list[str]:
        found = sorted((one for part in parts for one in part.found), key=lambda one: one[0])
        more = len(found[MOST:]) + sum(part.more for part in parts)
        rest = [_joined(self._locate(0), f"{more} more")] if more else []
        return [*(text for _, text in found[:MOST]), *rest]

    def refuse(self) -> None:
        """Raise ConfigError with a line for each fault, if there are any."""
        refuse([self])


def refuse(found: Iterable[Faults], value: Any = None) -> None:
    """Raise ConfigError with a line for each fault of some documents, if there are any.

    It is ``InvalidEntriesError`` if nothing but entries is wrong; ``value`` is without these.
    """
    found = [*found]
    lines = [line for one in found for line in one.lines]
    if any(one.lines_without_entries for one in found):
        raise ConfigError("\n".join(lines))
    if lines:
        raise InvalidEntriesError("\n".join(lines), value)


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
    """Return the one of ``known`` that is most like ``name``; an empty string if none is.

    Upper and lower case count only among several that are alike.
    """
    from difflib import get_close_matches  # for mistakes only

    by_case = {one.lower(): one for one in known}
    alike = get_close_matches(name.lower(), [*by_case], 1, likeness)
    return next((by_case[one] for one in alike), "")


def suggestion(name: str, known: Collection[str], likeness: float = 0.6) -> str:
    """Return advice for somebody who wrote ``name``, which is not ``known``."""
    if near := nearest(name, known, likeness):
        return f"did you mean {bounded(repr(near))}?"
    if not known:
        return "there are none"
    more = ", ..." if len(known) > _MOST_NAMES else ""
    shown = map(printable, [*known][:_MOST_NAMES])
    return f"known are {', '.join(map(bounded, shown))}{more}"
