"""A plugin of pytest: the slow tests are marked ``slow``, and ``make test`` leaves them out.

A test that takes more than ``LIMIT`` is slow. One that only this run took longer for is named at
the end of the run and does not fail: the machine may be busy.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import pytest

LIMIT: Final = 2.0
"""Seconds that a quick test may take on an idle machine, with its set-up and tear-down."""


def late(reports: Iterable[object]) -> list[tuple[str, float]]:
    """Return the tests that took longer and are not marked, with their seconds, the longest first.

    Args:
        reports: What pytest says of each phase of each test, and what else it notes.
    """
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        if isinstance(report, pytest.TestReport) and "slow" not in report.keywords:
            seconds[report.nodeid] += report.duration
    found = [(name, taken) for name, taken in seconds.items() if taken > LIMIT]
    return sorted(found, key=lambda one: -one[1])


def pytest_configure(config: pytest.Config) -> None:
    line = f"slow: takes more than {LIMIT:g} s; make test leaves it out, make test-all runs it"
    config.addinivalue_line("markers", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = late(one for reports in terminalreporter.stats.values() for one in reports)
    if found:
        terminalreporter.section(f"took more than {LIMIT:g} s and not marked slow")
    for name, seconds in found:
        terminalreporter.write_line(f"{seconds:6.1f} {name}")
