"""What takes long is marked slow, and ``make test`` leaves it out."""

from typing import Literal

import pytest

import tiers


def report(
    name: str, when: Literal["setup", "call", "teardown"], seconds: float, *marks: str
) -> pytest.TestReport:
    keywords: dict[str, Literal[1]] = dict.fromkeys(marks, 1)
    return pytest.TestReport(
        name, (name, 1, name), keywords, "passed", None, when, duration=seconds
    )


def test_a_test_that_takes_long_and_is_not_marked_is_named() -> None:
    reports = [
        report("quick", "call", tiers.LIMIT - 0.1),
        report("late", "setup", 1),
        report("late", "call", tiers.LIMIT - 0.5),
        report("later", "call", tiers.LIMIT + 1),
        report("marked", "call", tiers.LIMIT + 1, "slow"),
    ]
    assert [("later", tiers.LIMIT + 1), ("late", tiers.LIMIT + 0.5)] == tiers.late(
        [*reports, "a warning"]
    )
