"""The tables and the picture are what the measured figures say."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import figures
from deviceplugin_testing.tools.bench import _node, _summary
from deviceplugin_testing.tools.bench._errors import BenchError


def test_pages_show_the_figures_that_are_kept() -> None:
    wrong = [path.name for path, text in figures.pages() if text != path.read_text()]
    assert [] == wrong, "out of date: run build/figures.py"


def test_a_figure_that_changes_changes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads(figures.COMPARED.read_text())
    kept["sections"][0]["figures"] = [{"name": "RSS idle", "unit": "MiB", "median": 987.6}]
    other = tmp_path / "compared.json"
    other.write_text(json.dumps(kept))
    monkeypatch.setattr(figures, "COMPARED", other)
    pages = dict(figures.pages())
    assert "| 988 MiB |" in pages[figures.CRITIQUES]
    assert pages[figures.CRITIQUES] != figures.CRITIQUES.read_text()


def test_a_result_is_taken_into_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"name": "RSS idle", "unit": "MiB", "count": 2, "median": 1.23456, "values": [1, 2]}
    sections = [
        {"title": "gopher", "command": ["x"], "figures": [measured]},
        {"title": "other", "command": ["y"], "figures": [measured]},
    ]
    result, file = tmp_path / "result.json", tmp_path / "kept.json"
    result.write_text(json.dumps({"noise": {"median": 1.5}, "sections": sections}))
    monkeypatch.setattr(figures, "pages", lambda: iter(()))
    for note in ("first", "second"):
        figures.main(["take", str(result), str(file), note, "gopher=ours"])
    (section,) = json.loads(file.read_text())["sections"]
    assert ("ours", "second", {"median": 1.5}) == (
        section["title"], section["note"], section["noise"],
    )  # fmt: skip
    (figure,) = section["figures"]
    assert {"name": "RSS idle", "unit": "MiB", "count": 2, "median": 1.235} == figure


def test_what_was_not_measured_but_told_stays_when_the_rest_is_measured_again() -> None:
    told = {"name": "recovery", "unit": "", "text": "at once"}
    old = {"name": "RSS idle", "unit": "MiB", "median": 2.0}
    guessed = {"name": "RSS idle", "unit": "", "text": "a lot"}
    kept = {"sections": [{"title": "ours", "note": "first", "figures": [old, guessed, told]}]}
    new = {"name": "RSS idle", "unit": "MiB", "median": 1.0}
    result = {"sections": [{"title": "gopher", "figures": [new]}]}
    (section,) = _summary.merged(kept, result, {"gopher": "ours"}, "second")["sections"]
    assert [new, told] == section["figures"]


def test_the_picture_has_a_line_for_each_way_to_run_plugins() -> None:
    drawn = ET.fromstring(figures.PICTURE.read_text())
    ns = "{http://www.w3.org/2000/svg}"
    lines = [path for path in drawn.iter(f"{ns}path") if path.get("fill") == "none"]
    assert 5 == len(lines)
    assert {path.get("d", "").count("L") for path in lines} == {len(_node.PLUGINS) - 1}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        ("{", "no figures of deviceplugin bench --json"),
        ("{}", "no figures of deviceplugin bench --json"),
        ('{"sections": [{"title": "a", "figures": []}]}', "a has no figures"),
    ],
)
def test_a_file_without_figures_is_an_error(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    path = tmp_path / "figures.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BenchError, match=problem):
        _summary.load(path)


def test_a_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(BenchError, match="no table between <!-- a --> and <!-- end of a -->"):
        _summary.rewritten("<!-- a -->\n", "a", "text")


@pytest.mark.parametrize(
    ("figure", "cell"),
    [
        ({"unit": "us", "min": 864.2, "median": 900}, "0.86 ms"),
        ({"unit": "MiB", "median": 43.94}, "44 MiB"),
        ({"unit": "ms", "min": 5.23, "median": 9}, "5.2 ms"),
        ({"unit": "ms", "min": 1234.5, "median": 2000}, "1,234 ms"),
        ({"unit": "per s", "median": 14.5}, "14"),
        ({"unit": "", "median": 17}, "17"),
        ({"unit": "", "median": 0, "text": "never"}, "never"),
    ],
)
def test_a_cell_has_as_many_digits_as_can_be_trusted(figure: dict[str, object], cell: str) -> None:
    section = {"title": "a", "note": "here", "figures": [{"name": "x", **figure}]}
    lines = _summary.table({"sections": [section]}, [("row", "x"), ("none", "y")]).splitlines()
    assert ["|  | a (1) |", "|---|---|", f"| row | {cell} |", "", "(1) here"] == lines
