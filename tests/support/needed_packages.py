"""The packages that others need, as their metadata says, with all that these need."""

import re
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement


def closure(*wanted: str) -> Mapping[str, Distribution]:
    """Return what the requirements ``wanted`` need, with themselves, by normalised names."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        one = waiting.pop()
        new = {(one.name, extra) for extra in ("", *one.extras)} - found
        found |= new
        for name, extra in new:
            needed = [Requirement(text) for text in distribution(name).requires or ()]
            waiting += [
                each for each in needed if not each.marker or each.marker.evaluate({"extra": extra})
            ]
    return {re.sub(r"[-_.]+", "_", name).lower(): distribution(name) for name, _ in found}
