"""The page on the command shows a manifest, and what is really printed for it."""

import re
from pathlib import Path

import pytest

from deviceplugin.__main__ import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "common/docs/migrate.md"
_SECTION = re.compile(
    r"^## Migrate by command\n.*?^```yaml\n(?P<manifest>.*?)^```\n.*?"
    r"^```console\n\$ deviceplugin (?P<command>migrate (?P<file>\S+))\n(?P<output>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)


def test_the_page_shows_what_the_command_prints(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = _SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    monkeypatch.chdir(tmp_path)
    Path(found["file"]).write_text(found["manifest"], encoding="utf-8")
    assert 0 == main(found["command"].split())
    assert found["output"] == capsys.readouterr().out


def test_every_page_on_a_peer_names_the_command() -> None:
    pages = [*ROOT.glob("plugins/*/docs/coming-from*.md")]
    assert [] == [page for page in pages if "`deviceplugin migrate " not in page.read_text()]
