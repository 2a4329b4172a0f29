"""Results as a table for people, as JUnit XML and as JSON for programs."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from xml.etree import ElementTree as ET

from deviceplugin._app.text_table import aligned
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import Line, Tone
from deviceplugin_testing.conformance._check import NO_DEVICES, Check, Result, Verdict
from deviceplugin_testing.simulator import COMPARED

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_TONES: Final[Mapping[Verdict, Tone]] = {
    Verdict.PASS: Tone.GOOD,
    Verdict.FAIL: Tone.BAD,
    Verdict.NOT_APPLICABLE: Tone.QUIET,
}
_VERDICT_WIDTH: Final = 4


@dataclass(frozen=True, slots=True)
class Run:
    command: Sequence[str]
    resource: str
    seed: int
    seconds: float
    results: Sequence[Result]
    others: frozenset[str] = frozenset()
    """Resources of the plugin that were not checked."""
    problem: str = ""
    """Why the plugin did not start; empty if it did."""
    only_one: str = ""
    """Why it did not start beside another process of it; empty if it did."""
    kubelet_version: str = COMPARED
    """The release of Kubernetes whose kubelet was simulated."""
    needs_devices: bool = True
    """Whether it fails if it lists no healthy device."""

    @property
    def passed(self) -> bool:
        return not (self.problem or self.lacks_devices or self.counts[Verdict.FAIL])

    @property
    def lacks_devices(self) -> bool:
        """Whether checks could not be made for want of a device, and that is a failure."""
        return self.needs_devices and NO_DEVICES in self.unchecked

    @property
    def unchecked(self) -> Mapping[str, int]:
        """How many checks could not be made, by the reason."""
        skipped = (one for one in self.results if one.verdict is Verdict.NOT_APPLICABLE)
        return Counter(" ".join(result.text.split()) for result in skipped)

    @property
    def counts(self) -> Mapping[Verdict, int]:
        return Counter(result.verdict for result in self.results)


def line(result: Result, *, width: int, colour: bool) -> str:
    """Return one result as a line of text; for a failed check, also why it matters."""
    check = result.check
    notes = [
        ("it should", f"{check.title[0].lower()}{check.title[1:]}"),
        ("because", f"{check.why[0].lower()}{check.why[1:]}"),
        ("see", check.link),
    ]
    return Line(
        verdict=result.verdict,
        tone=_TONES[result.verdict],
        name=check.id,
        text=result.text,
        notes=notes if result.verdict is Verdict.FAIL else (),
    ).show((_VERDICT_WIDTH, width), colour=colour, indent="  ")


def summary(run: Run) -> str:
    counts = run.counts
    text = (
        f"{run.resource or 'no resource'}: {counts[Verdict.PASS]} passed, "
        f"{counts[Verdict.FAIL]} failed, {counts[Verdict.NOT_APPLICABLE]} not applicable "
        f"on Kubernetes {run.kubelet_version} in {run.seconds:.0f} s, with seed {run.seed}"
    )
    if run.problem:
        text += f"\nthe plugin did not start: {' '.join(run.problem.split())}"
    if run.only_one:
        text += f"\nchecked one by one, because it does not start beside another: {run.only_one}"
    if run.lacks_devices:
        text += f"\nfailed, because {NO_DEVICES}: give it one, or allow that: --allow-no-devices"
    if run.others:
        text += f"\nnot checked: {', '.join(sorted(run.others))}; use --resource or --each-resource"
    if run.unchecked and not run.problem:
        reasons = sorted(run.unchecked.items(), key=lambda one: -one[1])
        text += f"\nnot checked: {'; '.join(f'{why} ({count})' for why, count in reasons)}"
    return text


def catalogue(checks: Sequence[Check]) -> str:
    rows = iter(aligned([(check.id, check.title) for check in checks]))
    lines = []
    for group, members in groupby(checks, lambda check: check.group):
        lines += ["", group, *(f"  {next(rows)}" for _ in members)]
    return "\n".join(lines[1:])


def to_json(run: Run) -> str:
    parts = {
        "command": list(run.command),
        "resource": run.resource,
        "not_checked": sorted(run.others),
        "kubelet_version": run.kubelet_version,
        "seed": run.seed,
        "seconds": round(run.seconds, 3),
        "passed": run.passed,
        "problem": run.problem,
        "lacks_devices": run.lacks_devices,
        "checks": [
            {
                "id": result.check.id,
                "group": result.check.group,
                "title": result.check.title,
                "why": result.check.why,
                "link": result.check.link,
                "verdict": result.verdict.value,
                "text": result.text,
                "seconds": round(result.seconds, 3),
            }
            for result in run.results
        ],
    }
    return _command_line.to_json(_command_line.document(FORMAT, parts))


def to_junit(run: Run) -> str:
    """Return everything as JUnit XML, with a suite for each group."""
    root = ET.Element("testsuites", {"name": "deviceplugin conformance", **_totals(run.results)})
    for group, members in groupby(run.results, lambda result: result.check.group):
        results = list(members)
        suite = ET.SubElement(root, "testsuite", {"name": group, **_totals(results)})
        properties = ET.SubElement(suite, "properties")
        facts = {
            "command": shlex.join(run.command),
            "resource": run.resource,
            "kubelet_version": run.kubelet_version,
            "seed": str(run.seed),
        }
        for name, value in facts.items():
            ET.SubElement(properties, "property", name=name, value=_printable(value))
        for result in results:
            _case(suite, result)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _totals(results: Sequence[Result]) -> dict[str, str]:
    counts = Counter(result.verdict for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(counts[Verdict.FAIL]),
        "errors": "0",
        "skipped": str(counts[Verdict.NOT_APPLICABLE]),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _case(suite: ET.Element, result: Result) -> None:
    check, text = result.check, _printable(result.text)
    group, _, _ = check.id.partition(".")
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"conformance.{group}",
        name=check.id,
        time=f"{result.seconds:.3f}",
    )
    if result.verdict is Verdict.FAIL:
        failure = ET.SubElement(case, "failure", message=text)
        failure.text = f"It should: {check.title}\nBecause: {check.why}\nSee: {check.link}"
    elif result.verdict is Verdict.NOT_APPLICABLE:
        ET.SubElement(case, "skipped", message=text)
    else:
        ET.SubElement(case, "system-out").text = text


def _printable(text: str) -> str:
    """Return ``text`` without characters that XML cannot have."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
