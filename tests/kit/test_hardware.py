"""Devices as sysfs has them, of any bus."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_testing.fixture import FailingKernel
from hardware.tree import Hardware

Look = Callable[[], Tree]
CARD = "0000:03:00.0"


def test_the_devices_of_a_subsystem_are_found_in_its_class_and_on_its_bus(
    hardware: Hardware, look: Look
) -> None:
    hardware.pci(CARD, "1002:74a1", "120000", driver="amdgpu")
    hardware.device(f"pci0000:00/{CARD}/drm/card1", "drm", node="dri/card1")
    tree = look()
    (card,), (function,) = tree.subsystem("drm"), tree.subsystem("pci")
    assert ("card1", "drm", f"{hardware.dev}/dri/card1") == (card.name, card.subsystem, card.node)
    assert [card, function] == [one for one in card.line if one.subsystem]
    assert (function, CARD, "amdgpu", "") == (card.owner, card.port, card.driver, card.own_driver)
    assert (0x1002, 0x74A1) == (card.number(0), card.number(1))
    assert [] == tree.subsystem("accel")


def test_a_look_reads_each_thing_once(hardware: Hardware, look: Look) -> None:
    folder = hardware.device("virtual/a", "misc", attributes={"state": " on "})
    tree = look()
    (device,) = tree.subsystem("misc")
    assert " on " == device.attribute("state")
    (folder / "state").write_text("off")
    assert " on " == device.attribute("state")
    assert device is tree.device(device.path) is tree.subsystem("misc")[0]
    assert "off" == look().subsystem("misc")[0].attribute("state")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENODEV])
def test_a_device_that_goes_meanwhile_costs_no_other(
    hardware: Hardware, look: Look, kernel: FailingKernel, number: int
) -> None:
    gone = hardware.device("virtual/a", "misc", node="a", attributes={"serial": "1"})
    hardware.device("virtual/b", "misc", node="b", attributes={"serial": "2"})
    kernel.faults[gone] = number
    a, b = look().subsystem("misc")
    assert ("", "", "", []) == (a.serial, a.node, a.own_driver, list(a.behind("misc")))
    assert ("2", f"{hardware.dev}/b") == (b.serial, b.node)


def test_what_stands_alone_is_its_own_owner(hardware: Hardware, look: Look) -> None:
    hardware.device("virtual/net-tun", "misc", node="net/tun")
    (tun,) = look().subsystem("misc")
    assert (tun, "", None, "") == (tun.owner, tun.port, tun.number(0), tun.driver)


def test_a_device_is_found_by_its_node(hardware: Hardware, look: Look) -> None:
    folder = hardware.device("virtual/null", "mem")
    number = os.stat("/dev/null").st_rdev  # noqa: PTH116
    link = hardware.sys / f"dev/char/{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(folder)
    tree = look()
    found = tree.of_node("/dev/null")
    assert found is not None
    assert found is tree.of_node("/dev/null")
    assert "null" == found.name
    assert tree.of_node("/dev/zero") is None
    assert tree.of_node(str(folder)) is None
    assert tree.of_node("/dev/none") is None
    status = link.stat()
    assert (status.st_ino, status.st_ctime_ns) == tree.identity("char", number)
    assert tree.identity("block", number) is None


def test_a_node_that_cannot_be_seen_is_known_by_its_name(hardware: Hardware, look: Look) -> None:
    hardware.device("virtual/kfd", "kfd", node="kfd-that-no-machine-has")
    tree = look()
    assert tree.is_node("/dev/kfd-that-no-machine-has")
    assert tree.is_node("/dev/../dev/null")
    assert tree.is_node("/dev/../dev/null"), "again"
    assert not tree.is_node("/dev/none")
    assert not tree.is_node(str(hardware.sys))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_what_udev_knows_is_added(hardware: Hardware, look: Look) -> None:
    known = {"ID_MODEL": "T1000", "ODD=": "="}
    hardware.device("virtual/a", "tty", node="a", properties=known, links=("serial/by-id/x",))
    hardware.device("virtual/b", "block")
    (hardware.udev / "+block:b").write_text("E:A=1\nE:odd\n")
    (a,), (b,) = look().subsystem("tty"), look().subsystem("block")
    assert {"ID_MODEL": "T1000", "ODD": "=="} == a.properties
    assert ["/dev/serial/by-id/x"] == a.links
    assert {"A": "1"} == b.properties
    (hardware.udev / "+block:b").unlink()
    assert {} == look().subsystem("block")[0].properties


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x1c", "\v", "\r"])
def test_what_a_device_says_of_itself_makes_no_line_of_udevs(
    hardware: Hardware, look: Look, end: str
) -> None:
    said = f"T1000{end}S:serial/by-id/other{end}E:ID_PATH=other"
    hardware.device("virtual/a", "tty", node="a", properties={"ID_MODEL": said})
    (a,) = look().subsystem("tty")
    assert ([], ["ID_MODEL"]) == (a.links, list(a.properties))


def test_nodes_of_other_devices_behind_a_device_are_not_its_own(
    hardware: Hardware, look: Look
) -> None:
    hardware.pci(CARD, "15b3:101d", "020000")
    base = f"pci0000:00/{CARD}"
    hardware.device(f"{base}/infiniband/mlx5_0", "infiniband", node="")
    hardware.device(
        f"{base}/infiniband_verbs/uverbs0", "infiniband_verbs", node="infiniband/uverbs0"
    )
    hardware.pci(f"{CARD}/0000:04:00.0", "15b3:101e", "020000")
    hardware.device(f"{base}/0000:04:00.0/x/uverbs1", "infiniband_verbs", node="infiniband/uverbs1")
    hardware.device(f"{base}/sf", "auxiliary", attributes={"sfnum": "88"})
    hardware.device(f"{base}/sf/x/uverbs2", "infiniband_verbs", node="infiniband/uverbs2")
    function = look().device(str(hardware.sys / "devices" / base))
    assert ["uverbs0"] == [one.name for one in function.behind("infiniband_verbs")]
    assert [] == list(function.behind("drm"))


def test_events_are_counted_where_the_kernel_counts(hardware: Hardware, look: Look) -> None:
    assert "1" == look().events
    hardware.event()
    assert "2" == look().events
    (hardware.sys / "kernel/uevent_seqnum").unlink()
    assert "" == look().events


def test_a_node_without_sysfs_has_no_devices(tmp_path: Path) -> None:
    tree = Tree(Sysfs(tmp_path / "none"))
    assert [] == tree.subsystem("pci")
    assert not tree.contains("/sys/devices/x")
    assert Tree().contains(f"{os.path.realpath('/sys')}/devices/x")


def test_names_and_numbers_of_a_device_that_are_none_lead_nowhere(
    hardware: Hardware, look: Look
) -> None:
    folder = hardware.device("virtual/a", "misc", node="a", properties={"A": "1"})
    for name in ("a\0b", "../etc/passwd", "dri/../../x", "/dev//etc/x", "dri/"):
        (folder / "uevent").write_text(f"DEVNAME={name}\n")
        assert "" == look().subsystem("misc")[0].node
    for number in ("\0", "../data", "240:", "x:y"):
        (folder / "dev").write_text(f"{number}\n")
        assert {} == look().subsystem("misc")[0].properties
    for name, target in (("loop", "loop"), ("gone", "nothing")):
        (hardware.sys / "class/misc" / name).symlink_to(target)
    assert ["a"] == [device.name for device in look().subsystem("misc")]
    (hardware.pci(CARD, "1002:74a1", "120000") / "vendor").write_text("vendor\n")
    (function,) = look().subsystem("pci")
    assert (None, 0x74A1) == (function.number(0), function.number(1))


def test_a_snapshot_knows_whether_something_was_unreadable(
    hardware: Hardware, look: Look, kernel: FailingKernel
) -> None:
    folder = hardware.device("virtual/a", "misc", node="a")
    for number, expected in ((errno.EIO, False), (errno.ENOENT, True)):
        kernel.faults[folder / "state"] = number
        tree = look()
        (device,) = tree.subsystem("misc")
        assert ("", expected) == (device.attribute("state"), tree.is_complete)
