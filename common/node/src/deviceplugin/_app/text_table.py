"""Formatting tables as text."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return ``rows`` as lines with aligned columns. There must be a row, and all of one length.

    What a terminal would take for a command, as in the name of an interface, is escaped.
    """
    shown = [[*map(_escaped, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
