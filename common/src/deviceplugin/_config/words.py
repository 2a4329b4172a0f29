"""Words of messages: what somebody may have meant, and long values cut short."""

from collections.abc import Collection, Iterable
from typing import Final

_LONGEST: Final = 400
"""Characters of a key, or of a problem, that a message shows."""
_MOST_NAMES: Final = 40


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the one of ``known`` that is most like ``name``; an empty string if none is."""
    from difflib import get_close_matches  # for mistakes only

    return next(iter(get_close_matches(name, [*known], 1, likeness)), "")


def suggestion(name: str, known: Collection[str], likeness: float = 0.6) -> str:
    """Return advice for somebody who wrote ``name``, which is not ``known``."""
    if near := nearest(name, known, likeness):
        return f"did you mean {near!r}?"
    if not known:
        return "there are none"
    more = ", ..." if len(known) > _MOST_NAMES else ""
    return f"known are {', '.join([*known][:_MOST_NAMES])}{more}"


def bounded(text: str) -> str:
    """Return ``text`` for a message, without its middle if it is very long.

    The end stays, because it says what to do.
    """
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
