"""The page of platforms says what the plugin and the doctor do on each."""

from pathlib import Path

import pytest

from gpu.platforms import HEADER, PLATFORMS, Platform, row
from gpu.rig import GpuRig

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "plugins/gpu/docs/platforms.md"
LINES = PAGE.read_text().partition(HEADER)[2].strip().partition("\n\n")[0].splitlines()


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_a_pod_gets_what_the_page_says(rig: GpuRig, compiled: Path, platform: Platform) -> None:
    (line,) = (one for one in LINES if one.startswith(f"| {platform.name} |"))
    assert line == row(platform, rig, compiled), "if this is right, run make generate"


def test_the_page_has_these_platforms_and_no_others() -> None:
    assert [*PLATFORMS] == [one.split(" | ")[0][2:] for one in LINES]
