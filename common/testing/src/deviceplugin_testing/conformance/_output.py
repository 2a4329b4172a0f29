"""Summarising the output of a plugin in a few lines."""

import re
from collections import deque
from pathlib import Path
from typing import Final

_LONGEST_LINE: Final = 300
_CAUSE: Final = re.compile(r"\bpanic: |\bfatal\b|^F\d{4} \d\d:", re.IGNORECASE)
"""What a plugin in Go prints before hundreds of lines about its goroutines."""


def last_words(output: Path, count: int, begin: int = 0) -> list[str]:
    """Return the last ``count`` lines, preceded by the one that says why the plugin ended.

    Long lines are cut. ``begin`` is the offset in the file at which to begin, in bytes.
    """
    cause, last = "", deque[str](maxlen=count)
    with output.open("rb") as written:
        written.seek(begin)
        for line in filter(None, map(_readable, written)):
            last.append(line)
            cause = cause or (line if _CAUSE.search(line) else "")
    return [*last] if cause in {"", *last} else [cause, "...", *last]


def _readable(written: bytes) -> str:
    line = written.decode(errors="replace").strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."
