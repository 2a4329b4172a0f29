import json
import re
from pathlib import Path

import pytest

from deviceplugin_testing.tools.bench import _cli, _plan, _versus, main
from deviceplugin_testing.tools.bench._figures import Figure, Section, document, noise, table
from deviceplugin_testing.tools.bench._plan import Plan, Say
from deviceplugin_testing.tools.bench._subject import BenchSubject
from deviceplugin_testing.tools.bench._versus import alternate, ratios

QUIET = Figure("work", "ms", [1.0, 1.0, 1.1])


def test_a_99th_percentile_needs_a_hundred_values() -> None:
    assert None is Figure("a", "ms", range(99)).p99
    assert 98 == Figure("a", "ms", range(100)).p99
    assert 197 == Figure("a", "ms", range(200)).p99


def test_the_json_of_a_figure_has_its_values_in_their_order_and_what_they_say() -> None:
    said = {"name": "start", "unit": "ms", "count": 3, "min": 1, "median": 2, "p99": None, "max": 3}
    assert {**said, "values": [3, 1, 2]} == Figure("start", "ms", [3, 1, 2]).to_json()


def test_the_table_shows_the_spread_of_what_was_measured_more_than_once() -> None:
    section = Section(
        "x", ["x", "--y"], [Figure("start", "ms", [1.5, 2, 30]), Figure("n", "", [7])]
    )
    rows = [line.split() for line in table([section], QUIET).splitlines()]
    assert ["x", "--y"] in rows
    assert ["min", "median", "p99", "max", "times"] in rows
    assert ["start", "1.50", "2", "30", "ms", "3"] in rows
    assert ["n", "7", "1"] in rows


def test_the_last_line_of_the_table_tells_a_quiet_machine_from_a_noisy_one() -> None:
    assert table([], QUIET).strip().endswith("quiet.")
    noisy = Figure("work", "ms", [1.0, 2.0, 2.0])
    assert (2.0, 2.0) == noise(noisy)
    assert table([], noisy).strip().endswith("compare ratios.")


def test_the_document_says_where_and_of_what_the_figures_are() -> None:
    section = Section("x", ("x",), [Figure("n", "", [7])])
    found = document([section], QUIET)
    assert 1 == found["format"]
    assert {"kernel", "architecture", "cpus", "python", "grpcio"} == set(found["machine"])
    assert [section.to_json()] == found["sections"]


def section(*figures: Figure) -> Section:
    return Section("a plugin", ("command",), figures)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[BenchSubject, Plan]]:
    """What was measured, each time with its number as the only figure."""
    found: list[tuple[BenchSubject, Plan]] = []

    def measured(subject: BenchSubject, plan: Plan, _say: Say) -> Section:
        found.append((subject, plan))
        return Section(subject.title, subject.command, [Figure("start", "ms", [len(found)])])

    monkeypatch.setattr(_plan, "measure", measured)
    return found


def test_two_plugins_are_measured_in_turns_and_each_goes_first_as_often(
    turns: list[tuple[BenchSubject, Plan]],
) -> None:
    both = (BenchSubject(title="a", command=["a"]), BenchSubject(title="b", command=["b"]))
    plan = Plan(starts=10, idle=60.0, allocations=1000, changes=3, restarts=50)
    first, second = alternate(both, plan, lambda _text: None)
    assert ["a", "b", "b", "a"] * 2 == [subject.title for subject, _ in turns]
    assert [1, 4, 5, 8] == [*first.figures[0].values]
    assert [2, 3, 6, 7] == [*second.figures[0].values]
    assert Plan(starts=2, idle=15.0, allocations=250, changes=1, restarts=12) == turns[0][1]


def test_any_number_of_commands_is_measured_in_turns(
    turns: list[tuple[BenchSubject, Plan]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_cli, "_CALIBRATIONS", 2)
    assert 0 == main(["--", "a", "x", "--versus", "b", "--versus", "c", "--flag"])
    subjects = [subject for subject, _ in turns]
    assert ["a", "b", "c", "c", "b", "a"] * 2 == [subject.title for subject in subjects]
    assert [["a", "x"], ["b"], ["c", "--flag"]] == [subject.command for subject in subjects[:3]]
    out = capsys.readouterr().out
    assert ["A is a, B is b", "A is a, B is c"] == re.findall("A is a, B is .", out)


def test_a_difference_is_clear_only_if_the_middle_halves_do_not_overlap() -> None:
    low, high = [1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.2, 2.3]
    wide = [0.5, 1.5, 2.5, 3.5]
    one = section(Figure("x", "ms", low), Figure("y", "ms", low), Figure("z", "ms", low[:3]))
    other = section(Figure("x", "ms", high), Figure("y", "ms", wide), Figure("z", "ms", high[:3]))
    found = ratios(one, other)
    assert [("x", True), ("y", False), ("z", False)] == [(r.name, r.is_clear) for r in found]
    assert 2.15 / 1.15 == pytest.approx(found[0].factor)


def test_what_only_one_side_has_is_left_out_and_nothing_is_divided_by_0() -> None:
    found = ratios(
        section(Figure("gained", "", [0]), Figure("only here", "", [1])),
        section(Figure("gained", "", [3])),
    )
    assert [("gained", None)] == [(ratio.name, ratio.factor) for ratio in found]


def test_the_table_says_what_does_not_differ_clearly() -> None:
    one = section(Figure("start", "ms", [10.0] * 4), Figure("RSS", "MiB", [40.0] * 4))
    other = section(Figure("start", "ms", [20.0] * 4), Figure("RSS", "MiB", [40.0] * 4))
    rows = _versus.table("old", "new", ratios(one, other)).splitlines()[3:]
    assert [
        ["start", "10.00", "20.00", "2.00", "ms"],
        ["RSS", "40.00", "40.00", "1.00", "MiB", "no", "clear", "difference"],
    ] == [row.split() for row in rows]


def test_files_of_two_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, value in (("old", 2.0), ("new", 3.0)):
        paths.append(tmp_path / f"{name}.json")
        given = section(Figure("start", "ms", [value] * 5)).to_json()
        paths[-1].write_text(json.dumps({"sections": [given]}))
    assert 0 == main(["--compare", *map(str, paths)])
    assert "1.50" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "figures.json: no figures"),
        ("[]", "figures.json: no figures"),
        ('{"sections": [{"title": 1}]}', "figures.json: no figures"),
        ('{"sections": []}', "no section in common"),
        (None, "No such file"),
    ],
)
def test_files_that_cannot_be_compared_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, error: str
) -> None:
    path = tmp_path / "figures.json"
    if text is not None:
        path.write_text(text)
    assert 1 == main(["--compare", str(path), str(path)])
    assert error in capsys.readouterr().err
