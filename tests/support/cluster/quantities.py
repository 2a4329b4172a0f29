"""Numbers with units, as the API server writes them back: 1000m is 1, 1024Mi is 1Gi."""

import re
from decimal import Decimal

_DECIMAL = {"m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def canonical(text: object) -> str:
    """Return the quantity with the largest unit that leaves a whole number."""
    value, units, step = _parsed(text)
    if not value:
        return "0"
    for unit, power in sorted(units.items(), key=lambda one: -one[1]):
        count = value / Decimal(step) ** power
        if count == count.to_integral_value():
            return f"{int(count)}{unit}"
    return canonical(f"{int(value)}")


def number(text: object) -> int:
    """Return how much that is, as a whole number."""
    return int(_parsed(text)[0])


def _parsed(text: object) -> tuple[Decimal, dict[str, int], int]:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mkMGTPE]?|[KMGTPE]i)", str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity that is known here")
    units, step = (_BINARY, 1024) if found[2] in _BINARY else (_DECIMAL, 1000)
    return Decimal(found[1]) * Decimal(step) ** units[found[2]], units, step
