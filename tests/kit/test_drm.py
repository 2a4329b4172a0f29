"""Nodes of GPUs, and events of those that hang."""

from pathlib import Path

import pytest

from deviceplugin.kit import drm
from deviceplugin.kit.sysfs import Sysfs


@pytest.mark.parametrize(
    ("names", "expected", "minor"),
    [
        (
            ["card1", "card1-DP-1", "controlD64", "renderD128"],
            drm.Nodes("card1", "renderD128"),
            128,
        ),
        (["card0"], drm.Nodes("card0", ""), None),
        (["renderD1280"], drm.Nodes("", "renderD1280"), 1280),
        (["card", "renderD", "cards1"], drm.Nodes("", ""), None),
        ([], drm.Nodes("", ""), None),
    ],
)
def test_nodes_are_known_by_their_names(
    tmp_path: Path, names: list[str], expected: drm.Nodes, minor: int | None
) -> None:
    (tmp_path / "gpu").mkdir()
    for name in names:
        (tmp_path / "gpu/drm" / name).mkdir(parents=True)
    found = drm.nodes(Sysfs(tmp_path), "gpu")
    assert (expected, minor) == (found, found.minor)
    assert expected == drm.nodes(Sysfs(tmp_path), tmp_path / "gpu")


def test_a_node_that_does_not_exist_is_none(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    found = drm.Nodes("card1", "renderD128")
    assert [] == found.existing(tmp_path)
    for name in ("renderD128", "card1"):
        (tmp_path / "dri" / name).symlink_to("/dev/null")
    assert ["dri/card1", "dri/renderD128"] == found.existing(tmp_path)
    assert ["dri/card1"] == drm.Nodes("card1", "").existing(tmp_path)


PLACE = "devices/pci0000:00/0000:03:00.0"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"DEVPATH": f"/{PLACE}/drm/card1", "WEDGED": "rebind"}, drm.Wedged(PLACE, "rebind")),
        ({"DEVPATH": f"/{PLACE}/drm/card1", "WEDGED": "none"}, drm.Wedged(PLACE, "none")),
        ({"DEVPATH": f"/{PLACE}/drm/card1", "HOTPLUG": "1"}, None),
        ({"DEVPATH": f"/{PLACE}", "WEDGED": "rebind"}, None),
        ({"WEDGED": "rebind"}, None),
    ],
)
def test_an_event_of_a_device_that_hangs_is_known(
    event: dict[str, str], expected: drm.Wedged | None
) -> None:
    found = drm.wedged(event)
    assert expected == found
    assert (found is not None and found.is_recovered) == (event.get("WEDGED") == "none")
