"""What XIDs mean, and which of them make a GPU unhealthy."""

import re
from pathlib import Path

import pytest

from deviceplugin_gpu.health.xids import _TABLE, CATALOGUE, Action, Checks, known, parse_checks

PAGE = Path(__file__).parents[3] / "plugins/gpu/docs/health.md"


def test_what_the_catalogue_says_of_well_known_xids() -> None:
    assert Action.RESET == known(48).action
    assert Action.REBOOT == known(79).action
    assert Action.APPLICATION == known(94).action
    assert Action.RESET == known(109).action
    assert "XID 79 (the GPU is off the PCIe bus)" == str(known(79))


def test_each_xid_has_one_action_and_a_short_meaning() -> None:
    assert sorted(CATALOGUE) == [*CATALOGUE]
    assert sum(map(len, _TABLE.values())) == len(CATALOGUE)
    for number, xid in CATALOGUE.items():
        assert number == xid.number
        assert 5 < len(xid.meaning) < 65


def test_by_default_what_the_application_did_is_not_the_gpus_fault() -> None:
    checks = Checks()
    harmless = [8, 13, 31, 43, 45, 63, 68, 92, 94, 154]
    assert [] == [number for number in harmless if checks.count(number)]
    serious = [46, 48, 54, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 155, 158, 167]
    assert serious == [number for number in serious if checks.count(number)]


def test_an_xid_that_nobody_knows_counts() -> None:
    assert Checks().count(9999)
    assert "XID 9999 (not in the catalogue)" == str(known(9999))
    assert not known(9999).is_known


@pytest.mark.parametrize(
    ("disable", "enable", "counting", "not_counting"),
    [
        ("", "", [79, 48], [13, 94]),
        ("79", "", [48], [79, 13]),
        ("79, 48", "13", [13, 74], [79, 48]),
        ("all", "", [], [79, 48, 13, 9999]),
        ("XIDS", "", [], [79, 48, 13]),
        ("all", "79", [79], [48, 13]),
        ("xids,5", "79,94", [79, 94], [48, 5]),
        ("", "all", [13, 31, 94, 79], []),
        ("79", "all", [79, 13], []),
        ("79", "79", [79], [13]),
    ],
)
def test_what_is_enabled_is_stronger_than_what_is_disabled(
    disable: str, enable: str, counting: list[int], not_counting: list[int]
) -> None:
    checks, problems = parse_checks(disable, enable)
    assert [] == problems
    assert counting == [number for number in [*counting, *not_counting] if checks.count(number)]


def test_what_is_no_xid_is_reported_and_the_rest_counts() -> None:
    checks, problems = parse_checks("79, x,-3,,48", "0x1f,²")
    assert frozenset({79, 48}) == checks.disabled
    assert Checks(frozenset({79, 48})) == checks
    end = " is ignored: it is neither a number of an XID, nor all or xids"
    assert [
        f"DP_DISABLE_HEALTHCHECKS: 'x'{end}",
        f"DP_DISABLE_HEALTHCHECKS: '-3'{end}",
        f"DP_ENABLE_HEALTHCHECKS: '0x1f'{end}",
        f"DP_ENABLE_HEALTHCHECKS: '²'{end}",
    ] == problems


def test_the_documentation_has_the_same_table() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (yes|no) \| ([\d, ]+) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [
        (action.value, "no" if action.is_harmless else "yes", ", ".join(map(str, numbers)))
        for action in Action
        if (numbers := [number for number, xid in CATALOGUE.items() if xid.action is action])
    ]
    assert expected == rows
