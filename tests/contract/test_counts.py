"""The baseline of counts: what grew is named, and the pages have the figures of the file."""

import json

import pytest

from agents.agent_node import ALL
from measures import counts, figures


@pytest.mark.parametrize(
    ("before", "now", "grew", "others"),
    [
        ({"threads": 16}, {"threads": 16}, [], []),
        ({"threads": 16}, {"threads": 17}, ["threads: 16 before, 17 now: 1 more"], []),
        ({"threads": 16}, {"threads": 15}, [], ["threads: 16 before, 15 now"]),
        ({}, {"threads": 16}, [], ["threads: None before, 16 now"]),
        ({"instructions, million": 461}, {"instructions, million": 465}, [], []),
        (
            {"instructions, million": 461},
            {"instructions, million": 466},
            ["instructions, million: 461 before, 466 now: 5 more"],
            [],
        ),
        ({"skipped here": 1}, {}, [], []),
    ],
)
def test_what_grew_is_named(
    before: dict[str, int], now: dict[str, int], grew: list[str], others: list[str]
) -> None:
    assert (grew, others) == counts.differences(before, now)


def test_the_baseline_is_short_and_has_every_plugin() -> None:
    text = counts.BASELINE.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert {f"modules, {name}" for name in ALL} <= json.loads(text)["counts"].keys()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.0123, "0.012"), (9.94, "9.9"), (12.34, "12.3"), (5162.4, "5,162")],
)
def test_a_figure_has_the_digits_that_mean_something(value: float | None, text: str) -> None:
    assert text == figures.cell(value)
