"""``common/docs/simulator.md`` says what there is."""

import io
import re
from dataclasses import fields
from pathlib import Path

from deviceplugin_testing.simulator import Behaviour, SimulatedKubelet
from deviceplugin_testing.simulator._host.release import SINCE, UNTIL, Release
from deviceplugin_testing.tools._console import Console
from deviceplugin_testing.tools.kubelet._commands import KubeletCommands, LeapingClock

DOCUMENT = Path(__file__).parents[2] / "common/docs/simulator.md"
RELEASES_PAGE = DOCUMENT.with_name("supported-versions.md")


def rows(heading: str, page: Path = DOCUMENT) -> list[list[str]]:
    """Return the cells of the table below ``heading``, without its head."""
    text = page.read_text(encoding="utf-8").split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    _, _, *lines = table.group().splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_defect_is_listed() -> None:
    listed = [switch.strip("`") for switch, _ in rows("<!-- defects -->")]
    assert [field.name for field in fields(Behaviour)] == listed


def test_every_difference_between_releases_is_on_its_page() -> None:
    table = rows("<!-- releases -->", RELEASES_PAGE)
    last = {field.strip("`"): re.match(r"1\.(\d+): ", until) for field, until, _ in table}
    assert {field.name for field in fields(Release)} - {"name"} == set(last)
    ends = {**SINCE, **UNTIL}
    assert ends == {field: found and int(found[1]) + 1 for field, found in last.items()}


def test_every_command_is_listed(tmp_path: Path) -> None:
    commands = KubeletCommands(SimulatedKubelet(tmp_path), LeapingClock())
    shown = Console(commands.table, io.StringIO()).execute("help")
    expected = {line.split()[0] for line in shown.splitlines()}
    listed = " ".join(usage for usage, _ in rows("## In a terminal"))
    assert expected == {usage.split()[0] for usage in re.findall(r"`([^`]+)`", listed)}
