"""``common/docs/supported-versions.md`` has the releases that differ."""

import re
from pathlib import Path

from deviceplugin_testing.simulator._host.release import SINCE, UNTIL

PAGE = Path(__file__).parents[2] / "common/docs/supported-versions.md"


def test_every_release_that_differs_is_on_its_page() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("<!-- releases -->")[2].partition("\n\n")[0]
    differing = sorted({*SINCE.values(), *UNTIL.values()})
    listed = re.findall(r"^\| (1\.\d+) \|", text, re.MULTILINE)
    assert [f"1.{minor}" for minor in differing] == listed
