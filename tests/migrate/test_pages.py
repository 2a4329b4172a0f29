"""Each page on coming from a peer shows a manifest, and what the command really prints for it."""

import re
from pathlib import Path

import pytest

from deviceplugin.__main__ import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "common/docs"
FOLDERS = (DOCS, *ROOT.glob("plugins/*/docs"))
PAGES = [
    page
    for folder in FOLDERS
    for page in sorted(folder.glob("coming-from*.md"))
    if "## Migrate by command" in page.read_text()
]
_SECTION = re.compile(
    r"^## Migrate by command\n.*?^```yaml\n(?P<manifest>.*?)^```\n.*?"
    r"^```console\n\$ deviceplugin (?P<command>migrate (?P<file>\S+))\n(?P<output>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_page_shows_what_the_command_prints(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = _SECTION.search(page.read_text(encoding="utf-8"))
    assert found is not None
    monkeypatch.chdir(tmp_path)
    Path(found["file"]).write_text(found["manifest"], encoding="utf-8")
    assert 0 == main(found["command"].split())
    assert found["output"] == capsys.readouterr().out


def test_every_page_on_a_peer_has_the_command() -> None:
    without = {
        DOCS / "coming-from-device-plugin-manager.md",  # code, which no tool translates
        # Intel's manifest is migrated; common/docs/coming-from-intel.md shows how.
        ROOT / "plugins/intelgpu/docs/coming-from-intel.md",
    }
    pages = {*DOCS.glob("coming-from-*.md"), *ROOT.glob("plugins/*/docs/coming-from*.md")}
    assert pages - without == {*PAGES}
