"""A plugin of pytest: the slow tests are marked ``slow``, and ``make test`` leaves them out.

A test that takes more than ``LIMIT`` is slow. One that only this run took longer for is named at
the end of the run and does not fail: the machine may be busy. ``--folders`` says how long the tests
of each folder take.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import pytest

LIMIT: Final = 2.0
"""Seconds that a quick test may take on an idle machine, with its set-up and tear-down."""

_SHOWN: Final = 20


def late(reports: Iterable[pytest.TestReport]) -> list[tuple[str, float]]:
    """Return the tests that took longer and are not marked, with their seconds, the longest first.

    Args:
        reports: What pytest says of each phase of each test.
    """
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        if "slow" not in report.keywords:
            seconds[report.nodeid] += report.duration
    found = [(name, taken) for name, taken in seconds.items() if taken > LIMIT]
    return sorted(found, key=lambda one: -one[1])


def folders(reports: Sequence[pytest.TestReport]) -> list[str]:
    """Return the rows of a table: a folder, its quick and slow tests, and the seconds of both."""
    rows: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for report in reports:
        folder = report.nodeid.partition("::")[0].rpartition("/")[0]
        row, slow = rows["/".join(folder.split("/")[:2])], "slow" in report.keywords
        row[2 * slow] += report.when == "call"
        row[2 * slow + 1] += report.duration
    lines = [f"| `{name}` | {a} | {b:.0f} | {c} | {d:.0f} |" for name, (a, b, c, d) in rows.items()]
    return sorted(lines)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("deviceplugin", "tests of deviceplugin").addoption(
        "--folders",
        action="store_true",
        help="end with the number of quick tests of each folder, their seconds, and the slow ones'",
    )


def pytest_configure(config: pytest.Config) -> None:
    line = f"slow: takes more than {LIMIT:g} s; make test leaves it out, make test-all runs it"
    config.addinivalue_line("markers", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    every = [one for reports in terminalreporter.stats.values() for one in reports]
    reports = [one for one in every if isinstance(one, pytest.TestReport)]
    found = late(reports)
    if found:
        terminalreporter.section(f"took more than {LIMIT:g} s and not marked slow")
    for name, seconds in found[:_SHOWN]:
        terminalreporter.write_line(f"{seconds:6.1f} {name}")
    if len(found) > _SHOWN:
        terminalreporter.write_line(f"       and {len(found) - _SHOWN} more")
    if terminalreporter.config.getoption("folders"):
        terminalreporter.section("folders")
        for line in folders(reports):
            terminalreporter.write_line(line)
