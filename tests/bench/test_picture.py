from xml.etree import ElementTree as ET

import pytest

from deviceplugin_testing.tools.bench._picture import Line, _apart, _round_up, chart

NS = "{http://www.w3.org/2000/svg}"


def test_a_chart_has_its_lines_with_their_names_and_last_values() -> None:
    lines = [Line("ours & theirs", [10, 20, 35]), Line("other", [1, 2, 3])]
    drawn = ET.fromstring(chart("A <title>", "across", ["a", "b", "c"], lines))
    texts = [text.text for text in drawn.iter(f"{NS}text")]
    assert {"A <title>", "across", "a", "b", "c", "0", "40", "ours & theirs: 35"} <= {*texts}
    points = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in drawn.iter(f"{NS}circle")]
    assert points[0][1] > points[1][1] > points[2][1], "what is more is higher"
    assert points[0][0] == points[3][0]


@pytest.mark.parametrize(
    ("value", "top"), [(35, 40), (40, 40), (41, 60), (218, 240), (1, 1), (0.3, 0.4)]
)
def test_the_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert top == pytest.approx(_round_up(value))


def test_names_do_not_overlap() -> None:
    assert [10, 26, 42, 100] == _apart([10, 11, 12, 100])
    assert [116, 100] == _apart([101, 100])
