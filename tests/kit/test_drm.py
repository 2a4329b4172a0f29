"""Nodes of GPUs, and events of those that hang."""

import json
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
    (tmp_path / "dri/card1").unlink()
    reason = f"{tmp_path}/dri/card1 does not exist"
    assert {"dri/card1": reason, "dri/renderD128": ""} == found.absences(tmp_path)


def test_the_nodes_of_another_device_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "a/drm/card0").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/drm").symlink_to("../a/drm")
    assert drm.Nodes("", "") == drm.nodes(Sysfs(tmp_path), "b")


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


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    folder = tmp_path / PLACE
    (folder / "drm").mkdir(parents=True)
    return folder


def said(ways: str) -> dict[str, str]:
    return {"DEVPATH": f"/{PLACE}/drm/card1", "WEDGED": ways}


def test_a_hang_lasts_until_the_driver_has_recovered_the_device(tmp_path: Path, gpu: Path) -> None:
    hangs = drm.Hangs(Sysfs(tmp_path))
    assert drm.Hang("", False) == hangs.check(gpu)
    hangs.heard(said("rebind"))
    hangs.heard({"DEVPATH": "/devices/virtual/drm"})
    saved = json.loads(json.dumps(hangs.remembered))
    for one in (hangs, hangs, drm.Hangs(Sysfs(tmp_path), saved)):
        assert drm.Hang("rebind", False) == one.check(gpu)
    assert drm.Hang("", False) == hangs.check(gpu.with_name("0000:04:00.0"))
    hangs.heard(said("none"))
    assert [drm.Hang("", True), drm.Hang("", False)] == [hangs.check(gpu) for _ in range(2)]
    with pytest.raises((TypeError, LookupError)):
        drm.Hangs(Sysfs(tmp_path), {"0000:03:00.0": "rebind"})


def test_a_hang_and_its_recovery_are_over_when_the_driver_is_bound_anew(
    tmp_path: Path, gpu: Path
) -> None:
    hangs, recovered = drm.Hangs(Sysfs(tmp_path)), drm.Hangs(Sysfs(tmp_path))
    hangs.heard(said("rebind"))
    recovered.heard(said("none"))
    (gpu / "drm").rename(gpu / "old")
    assert 0 == drm.binding(gpu)
    assert "rebind" == hangs.check(gpu).ways  # no driver, and nothing new is known
    (gpu / "drm").mkdir()
    assert [drm.Hang("", False)] * 2 == [hangs.check(gpu), recovered.check(gpu)]
    assert {} == hangs.remembered
