"""Formatting tables as text."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return ``rows`` as lines with aligned columns. There must be a row, and all of one length.

    What a terminal would take for a command, as in the name of an interface, is escaped.
    """
    return [*in_chunks(rows, len(rows))]


def in_chunks(rows: Iterable[Sequence[str]], size: int = 1000) -> Iterator[str]:
    """Yield ``rows`` as lines with columns as wide as ``size`` rows need, or those before.

    So the first of very many rows need not wait for the last.
    """
    left, widths = iter(rows), list[int]()
    while chunk := [[*map(_escaped, row)] for row in islice(left, size)]:
        needed = [max(map(len, column)) for column in zip(*chunk, strict=True)]
        widths = [*map(max, widths, needed)] if widths else needed
        for row in chunk:
            yield "  ".join(map(str.ljust, row, widths)).rstrip()


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
