"""What was found: lines while it runs, and a page in Markdown that a user can attach."""

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

from deviceplugin.checks import Finding, Verdict

_WORDS: Final[Mapping[Verdict, str]] = {
    Verdict.OK: "ok",
    Verdict.WARNING: "warning",
    Verdict.FAILURE: "**failed**",
    Verdict.UNKNOWN: "not possible",
}
_LONGEST: Final = 500


@dataclass
class Report:
    """The findings by section, in their order. Each is also a line of standard error."""

    plugin: str
    options: str
    facts: dict[str, str] = field(default_factory=dict[str, str])
    sections: dict[str, list[Finding]] = field(default_factory=dict[str, list[Finding]])

    def begin(self, section: str) -> None:
        """Begin a section, which the page has even if nothing is found."""
        self.sections.setdefault(section, [])
        self._progress(f"-- {section}")

    def add(self, findings: Iterable[Finding]) -> None:
        """Add findings to the last section."""
        for one in findings:
            self.sections[[*self.sections][-1]].append(one)
            word = _WORDS[one.verdict].strip("*")
            self._progress(f"   {word:12}  {_plain(one.looked_at)}: {_plain(one.found)}")

    def _progress(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def count(self, verdict: Verdict) -> int:
        """Return how many findings have this verdict."""
        return sum(one.verdict == verdict for found in self.sections.values() for one in found)

    @property
    def summary(self) -> str:
        """One line."""
        numbers = [f"{self.count(verdict)} {word.strip('*')}" for verdict, word in _WORDS.items()]
        return ", ".join(numbers)

    def page(self) -> str:
        """Return the page. It has no name of the machine, and no pods."""
        facts = {
            "deviceplugin": version("deviceplugin"),
            "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(),
            "options": self.options or "none",
            **self.facts,
        }
        lines = [f"# {self.plugin}-device-plugin accept", "", f"{self.summary}.", ""]
        lines += [f"* {name}: {_cell(value)}" for name, value in facts.items()]
        for section, findings in self.sections.items():
            lines += ["", f"## {section}", ""]
            if findings:
                lines += ["| | What | Result |", "|---|---|---|", *map(_row, findings)]
            else:
                lines.append("Nothing.")
        return "\n".join([*lines, ""])


def _row(one: Finding) -> str:
    more = [text for text in (one.found, one.means, one.do) if text]
    return f"| {_WORDS[one.verdict]} | {_cell(one.looked_at)} | {_cell('; '.join(more))} |"


def _plain(text: str) -> str:
    shown = "".join(one if one.isprintable() else " " for one in text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def _cell(text: str) -> str:
    """Return a string that may come from a device, such that it is only text in a table."""
    return "".join(f"\\{one}" if one in r"\`|<[*_" else one for one in _plain(text))
