"""What reports of the commands have in common: lines with verdicts, and JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Final

_PLAIN: Final = "\x1b[0m"


def document(form: int, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``parts``, preceded by ``form``, the version of their form, and by our version."""
    return {"format": form, "deviceplugin": version("deviceplugin"), **parts}


def to_json(document: Mapping[str, Any]) -> str:
    """Return ``document`` as text."""
    return json.dumps(document, indent=1) + "\n"


class Tone(StrEnum):
    """The severity of a verdict, as a terminal's colour."""

    GOOD = "\x1b[32m"
    DOUBTFUL = "\x1b[33m"
    BAD = "\x1b[1;31m"
    QUIET = "\x1b[2m"


@dataclass(frozen=True, slots=True)
class Line:
    """A verdict on something."""

    verdict: str
    tone: Tone
    name: str
    text: str
    notes: Sequence[tuple[str, str]] = ()
    """Notes below the line, each with its label. Empty notes are skipped."""

    def show(self, widths: tuple[int, int], *, colour: bool, indent: str = "") -> str:
        """Return it as text. ``widths`` are those of the verdict and the name."""
        of_verdict, of_name = widths
        verdict = f"{self.verdict:{of_verdict}}"
        if colour:
            verdict = f"{self.tone}{verdict}{_PLAIN}"
        first = f"{indent}{verdict}  {self.name:{of_name}}  {_one_line(self.text)}"
        below, width = (
            indent + " " * (of_verdict + 2),
            max((len(n) for n, _ in self.notes), default=0),
        )
        notes = (
            f"{below}{f'{n}:':{width + 1}} {_one_line(text)}" for n, text in self.notes if text
        )
        return "\n".join([first, *notes])


def _one_line(words: str) -> str:
    return " ".join(words.split())
