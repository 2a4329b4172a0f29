"""``common/docs/simulator.md`` says what there is."""

import io
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from deviceplugin_testing.simulator import Behaviour, SimulatedKubelet
from deviceplugin_testing.simulator._host.release import SINCE, UNTIL, Release
from deviceplugin_testing.tools._console import Console
from deviceplugin_testing.tools.kubelet._commands import KubeletCommands, LeapingClock

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "common/docs/simulator.md"
RELEASES_PAGE = DOCUMENT.with_name("kubelet-releases.md")

_COMMENT = re.compile(r"^# As upstream's (.*(?:\n# .*)*)\.\n(?:.*\n)*?def (test_\w+)", re.MULTILINE)


def rows(heading: str, page: Path = DOCUMENT) -> list[list[str]]:
    """Return the cells of the table below ``heading``, without its head."""
    text = page.read_text(encoding="utf-8").split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    _, _, *lines = table.group().splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(HERE.rglob("test_*.py")))


def upstream_tests() -> Iterator[tuple[str, str]]:
    """Yield what the comments name, and the test that each is about."""
    for said, test in _COMMENT.findall(sources()):
        names = re.sub(r"\s*\n# ", " ", said)
        names = re.sub(r"(and )?end-to-end tests?: ", "", names)
        for name in re.split(r", | and (?=Test)", names):
            yield name, test


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text(encoding="utf-8")))
    assert named <= set(re.findall(r"^def (test_\w+)", sources(), re.MULTILINE))


def test_every_fact_has_a_test() -> None:
    facts = rows("<!-- facts -->")
    assert 25 < len(facts)
    assert all("`test_" in tests for _, tests in facts)


def test_upstreams_tests_are_listed() -> None:
    listed = {(what.strip("`"), test.strip("`")) for what, test in rows("<!-- upstream -->")}
    assert set(upstream_tests()) == listed


def test_every_defect_is_listed() -> None:
    listed = [switch.strip("`") for switch, _ in rows("<!-- defects -->")]
    assert [field.name for field in fields(Behaviour)] == listed


def test_every_difference_between_releases_is_on_its_page() -> None:
    table = rows("<!-- releases -->", RELEASES_PAGE)
    named = {field.strip("`"): re.findall(r"`(test_\w+)`", cells[-1]) for field, *cells in table}
    assert {field.name for field in fields(Release)} - {"name"} == set(named)
    tests = set(re.findall(r"^def (test_\w+)", sources(), re.MULTILINE))
    assert all(named.values())
    assert {test for found in named.values() for test in found} <= tests
    last = {field.strip("`"): re.match(r"1\.(\d+): ", until) for field, until, *_ in table}
    ends = {**SINCE, **UNTIL}
    assert ends == {field: found and int(found[1]) + 1 for field, found in last.items()}


def test_every_command_is_listed(tmp_path: Path) -> None:
    commands = KubeletCommands(SimulatedKubelet(tmp_path), LeapingClock())
    shown = Console(commands.table, io.StringIO()).execute("help")
    expected = {line.split()[0] for line in shown.splitlines()}
    listed = " ".join(usage for usage, _ in rows("## In a terminal"))
    assert expected == {usage.split()[0] for usage in re.findall(r"`([^`]+)`", listed)}
