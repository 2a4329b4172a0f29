"""What somebody may have meant who wrote an unknown name."""

from collections.abc import Collection, Iterable
from typing import Final

from deviceplugin._config.documents.faults import bounded

_MOST_NAMES: Final = 40


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
    shown = (one if one.isprintable() else repr(one) for one in [*known][:_MOST_NAMES])
    return f"known are {', '.join(map(bounded, shown))}{more}"
