"""Quantities, as the API server writes them back: ``1024Mi`` is ``1Gi``, ``0.5`` is ``500m``."""

import re
from fractions import Fraction
from typing import Final, NamedTuple

_FORMAT: Final = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_PARTS: Final = re.compile(
    r"(?P<sign>[+-]?)0*(?P<number>\d*)(\.(?P<decimals>\d*))?"
    r"(?P<suffix>[eEinumkKMGTP]*(?:(?<=[eE])[-+]?\d+)?)",
    re.ASCII,
)
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT: Final = re.compile(r"[eE]([-+]?\d{1,3})")
"""The server takes more digits, and works on some of these numbers for minutes."""
_DIGITS: Final = 18
"""Digits of which the server knows that they fit into 64 bits."""
_FINEST: Final = -9
_MOST: Final = 2**63 - 1
_THOUSAND: Final = 3
"""Its digits."""


class _Parsed(NamedTuple):
    negative: bool
    number: str
    decimals: str
    base: int
    exponent: int
    is_exponent: bool

    @property
    def value(self) -> Fraction:
        digits = int(self.number + self.decimals) * Fraction(10) ** -len(self.decimals)
        return digits * Fraction(self.base) ** self.exponent

    @property
    def is_kept(self) -> bool:
        """Whether the server keeps the string: if a quick check says that it is canonical."""
        digits = self.number + self.decimals
        if self.base == 2:  # noqa: PLR2004
            room = _DIGITS - 4 - len(self.number) - self.exponent * 3 // 10
            return not self.decimals and room >= 0 and int(digits) % 8 != 0
        scale = self.exponent - len(self.decimals)
        fits = len(digits) <= _DIGITS and scale >= _FINEST
        return fits and not scale % _THOUSAND and digits[0] != "0" and not digits.endswith("000")


def amount(text: object) -> Fraction:
    """Return the value of a quantity; raise ``ValueError`` in the API server's words."""
    parsed = _parse(str(text).strip())
    return -parsed.value if parsed.negative else parsed.value


def canonical(text: object) -> str:
    """Return how the API server writes a quantity; raise ``ValueError`` in its words."""
    given = str(text).strip()
    parsed = _parse(given)
    if parsed.is_kept:
        return given
    value, finest = parsed.value, Fraction(10) ** _FINEST
    value = -(-value // finest) * finest  # rounded up
    binary = parsed.base == 2  # noqa: PLR2004
    if binary:
        value = min(value, Fraction(_MOST))
        binary = value >= 1024 and value.denominator == 1  # noqa: PLR2004
    shown = in_binary(value) if binary else _in_decimal(value, exponent=parsed.is_exponent)
    return f"-{shown}" if parsed.negative and value else shown


def _parse(text: str) -> _Parsed:
    found = _PARTS.fullmatch(text)
    if found is None or not text.strip("+-"):
        raise ValueError(f"quantities must match the regular expression '{_FORMAT}'")
    number, decimals = found["number"] or "0", found["decimals"] or ""
    suffix, negative = found["suffix"], found["sign"] == "-"
    if suffix in _DECIMAL:
        return _Parsed(negative, number, decimals, 10, _DECIMAL[suffix], is_exponent=False)
    if suffix in _BINARY:
        return _Parsed(negative, number, decimals, 2, _BINARY[suffix], is_exponent=False)
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise ValueError("unable to parse quantity's suffix")
    return _Parsed(negative, number, decimals, 10, int(exponent[1]), is_exponent=True)


def _in_decimal(value: Fraction, *, exponent: bool) -> str:
    if not value:
        return "0"
    power = _FINEST
    while power < max(_DECIMAL.values()) and not value % Fraction(10) ** (power + _THOUSAND):
        power += _THOUSAND
    count = value / Fraction(10) ** power
    if exponent:
        return f"{count}e{power}" if power else f"{count}"
    names = {power: name for name, power in _DECIMAL.items()}
    return f"{count}{names[power]}"


def in_binary(value: Fraction) -> str:
    """Return a whole number with the largest suffix, such as Gi, that needs no fraction."""
    power = 0
    while value and power < max(_BINARY.values()) and not value % 2 ** (power + 10):
        power += 10
    names = {0: "", **{power: name for name, power in _BINARY.items()}}
    return f"{value / 2**power}{names[power]}"
