"""``common/docs/supported-versions.md`` has the releases that differ."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from deviceplugin_testing.simulator import RELEASES
from deviceplugin_testing.simulator._host.release import Release

PAGE = Path(__file__).parents[2] / "common/docs/supported-versions.md"


def test_every_release_that_differs_is_on_its_page() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("<!-- releases -->")[2].partition("\n\n")[0]
    known = [replace(Release.of(name), name="") for name in RELEASES]
    differing = [
        name for name, (old, new) in zip(RELEASES[1:], pairwise(known), strict=True) if old != new
    ]
    listed = re.findall(r"^\| (1\.\d+) \|", text, re.MULTILINE)
    assert differing == listed
