"""Running checks one after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deviceplugin.checks import Finding, Node, unknown
from deviceplugin.tools.doctor.checks import AnyCheck


@dataclass(frozen=True, slots=True)
class Result:
    """A finding, and the check that made it."""

    check: str
    finding: Finding


def run(node: Node, checks: Sequence[AnyCheck]) -> Iterator[Result]:
    """Run ``checks`` on ``node`` and yield their findings. An OSError becomes a finding."""
    for check in checks:
        try:
            findings = list(check.run(node))
        except OSError as error:
            path = error.filename or check.title
            do = "run as root." if isinstance(error, PermissionError) else ""
            findings = [unknown(str(path), f"cannot be examined: {error.strerror or error}", do)]
        for finding in findings:
            yield Result(check.name, finding)
