"""All faults of a document, collected."""

from collections.abc import Callable
from typing import Final

from deviceplugin.errors import ConfigError

_LONGEST: Final = 400
"""Characters of a key, or of a problem, that a message shows."""


class InvalidError(Exception):
    """The value at a place is wrong. The fault has been recorded."""


class Faults:
    """All faults of a document. ``locate`` describes a line for messages."""

    def __init__(self, locate: Callable[[int], str]) -> None:
        self._locate = locate
        self._found: dict[tuple[int, str], None] = {}
        self.count = 0

    def place(self, line: int, key: str) -> str:
        """Return a place in the document for messages: ``FILE:LINE: KEY``."""
        return ": ".join(part for part in (self._locate(line), bounded(key)) if part)

    def add(self, line: int, key: str, problem: str) -> InvalidError:
        """Record a fault; duplicates are dropped. A key or problem that is very long is cut."""
        self.count += 1
        text = ": ".join(part for part in (self.place(line, key), bounded(problem)) if part)
        self._found.setdefault((line, text))
        return InvalidError(text)

    def apart(self) -> "Faults":
        """Return an empty collection for faults of the same document."""
        return Faults(self._locate)

    @property
    def lines(self) -> list[str]:
        """All faults, in the order of the document."""
        return [text for _, text in sorted(self._found, key=lambda found: found[0])]

    def refuse(self) -> None:
        """Raise ConfigError with a line for each fault, if there are any."""
        if self._found:
            raise ConfigError("\n".join(self.lines))


def bounded(text: str) -> str:
    """Return ``text`` for a message, without its middle if it is very long.

    The end stays, because it says what to do.
    """
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
