"""One piece of hardware has one holder, whatever its id and its resource are."""

from dataclasses import replace
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.stale import Given
from deviceplugin.kit import pieces
from one_piece.world import A, B, World

CLAIM, OTHER = Claim("default", "one", "uid-1"), Claim("default", "two", "uid-2")


def device(device_id: str, *hardware: str, share_of: str = "") -> dp.Device:
    return dp.Device(device_id, hardware=hardware, share_of=share_of)


@pytest.fixture
def world() -> World:
    return World()


# What a pod holds is hardware, and not an id.


def test_a_device_under_another_id_is_refused_until_the_pod_that_holds_it_has_ended(
    world: World,
) -> None:
    world.discover(a=[device("stick", "s1")])
    world.allocate("stick")
    world.pods((A, "stick"))
    world.discover(a=[device("stick+extra", "s1", "s2"), device("other", "s3")])
    assert {"stick+extra": "held as stick by pod default/pod-stick"} == world.closed()
    assert ({"stick+extra"}, True) == (world.withheld(), world.ownership.wanted)
    assert "stick+extra is held as stick by pod default/pod-stick" == world.allocate("stick+extra")
    assert "" == world.allocate("other")
    world.pods()
    assert {} == world.closed()
    assert "" == world.allocate("stick+extra")
    assert not world.ownership.wanted


@pytest.mark.parametrize(("plugin", "other"), [("P", "gpu"), ("Q", "function")])
def test_a_device_of_a_resource_is_not_given_out_as_one_of_another(
    world: World, plugin: str, other: str
) -> None:
    world.discover("P", a=[device("gpu", "pci/1")])
    world.allocate("gpu")
    world.discover(plugin, b=[device(other, "pci/1")])
    assert f"{other} is held as gpu of x.io/a by a pod" == world.allocate(other, resource=B)


def test_a_device_of_two_resources_at_once_has_one_holder(world: World) -> None:
    world.discover(a=[device("one", "p"), device("two", "q")], b=[device("one", "p")])
    assert "" == world.allocate("one", resource=B)
    assert {"one": "held as one of x.io/b by a pod"} == world.closed()
    assert "" == world.allocate("two")


def test_equal_ids_of_different_hardware_are_different_devices(world: World) -> None:
    world.discover(a=[device("0", "ctl", "p")], b=[device("0", "ctl", "q")])
    assert ("", "") == (world.allocate("0"), world.allocate("0", resource=B))


def test_what_a_claim_holds_is_held_under_every_id() -> None:
    dra = World("dra")
    dra.discover(a=[device("stick", "s1")])
    assert "" == dra.prepare(CLAIM, (A, "stick"))
    dra.discover(a=[device("stick+extra", "s1", "s2")])
    assert "stick+extra is held as stick by claim default/one" == dra.prepare(
        OTHER, (A, "stick+extra")
    )
    state = dra.ownership.offered(dra.resources[A])["stick+extra"]
    assert ("held", "held as stick by claim default/one") == (state.taint, state.reason)
    dra.ownership.unprepare(CLAIM.uid)
    assert "" == dra.prepare(OTHER, (A, "stick+extra"))


def test_a_claim_may_have_one_device_under_two_ids() -> None:
    dra = World("dra")
    dra.discover("P", a=[device("gpu", "pci/1")])
    dra.discover("Q", b=[device("function", "pci/1")])
    assert "" == dra.prepare(CLAIM, (A, "gpu"))
    assert "" == dra.prepare(CLAIM, (B, "function"))


def test_both_protocols_respect_each_other(world: World) -> None:
    world.discover(a=[device("stick", "s1")])
    world.allocate("stick")
    world.discover(a=[device("new", "s1")])
    world.pods((A, "stick"))
    world.ownership.switch("dra")
    world.pods((A, "stick"))
    assert "new is held as stick by pod default/pod-stick" == world.prepare(CLAIM, (A, "new"))


@pytest.fixture
def rivals(world: World) -> World:
    """A world of two plugins that have the same piece as ``gpu`` and ``function``."""
    world.discover("P", a=[device("gpu", "pci/1")])
    world.discover("Q", b=[device("function", "pci/1")])
    return world


def test_of_two_allocations_at_once_one_is_refused(rivals: World) -> None:
    with rivals.ownership.allocating(A, ["gpu"]):
        assert "held as gpu" in rivals.allocate("function", resource=B)


def test_a_failed_allocation_closes_nothing(rivals: World) -> None:
    with pytest.raises(OSError, match="broken"), rivals.ownership.allocating(A, ["gpu"]):
        raise OSError("broken")
    assert {} == rivals.closed(B)
    assert "" == rivals.allocate("function", resource=B)


def test_one_container_does_not_get_one_device_twice(rivals: World) -> None:
    rivals.ownership.hardware.identify("Q", {A: {"function": device("function", "pci/1")}})
    assert "is held as" in rivals.allocate("gpu", "function")
    assert {} == rivals.closed()


# What several devices have in common excludes nobody.


def shares(of: str) -> list[dp.Device]:
    whole = device("", "gpu", share_of=of)
    return [replace(whole, id=f"{of}::{number}") for number in range(2)]


def test_shares_of_one_device_do_not_exclude_each_other(world: World) -> None:
    world.discover(a=shares("g"))
    assert ["", ""] == [world.allocate("g::0"), world.allocate("g::1")]
    assert {} == world.closed()


def test_a_device_is_given_out_neither_whole_nor_as_other_shares_while_a_share_is_held(
    world: World,
) -> None:
    world.discover(a=shares("g"))
    world.allocate("g::1")
    world.discover(a=[*shares("h"), device("g", "gpu")])
    assert dict.fromkeys(["h::0", "h::1", "g"], "held as g::1 by a pod") == world.closed()
    assert "g is held as g::1 by a pod" == world.allocate("g")


def test_a_share_under_two_resources_has_one_holder(world: World) -> None:
    world.discover(a=shares("g"), b=shares("g"))
    world.allocate("g::0")
    assert {"g::0": "held as g::0 of x.io/a by a pod"} == world.closed(B)


def test_partitions_exclude_the_whole_and_not_each_other(world: World) -> None:
    world.discover(a=[device("mig-1", "gpu", "mig-1"), device("mig-2", "gpu", "mig-2")])
    world.allocate("mig-1")
    assert {} == world.closed()
    world.discover(b=[device("gpu", "gpu")])
    assert "gpu is held as mig-1 of x.io/a by a pod" == world.allocate("gpu", resource=B)


def test_overlapping_devices_of_one_plugin_do_not_exclude_each_other(world: World) -> None:
    world.discover(a=[device("tty", "s1")], b=[device("zigbee", "s1")])
    assert ("", "") == (world.allocate("tty"), world.allocate("zigbee", resource=B))


def test_a_control_node_is_no_piece_of_a_device(world: World, tmp_path: Path) -> None:
    def with_control(name: str) -> dp.Device:
        nodes = [dp.DeviceNode(str(tmp_path / one)) for one in ("common", name)]
        return dp.Device(name, nodes=nodes)

    world.discover(a=[with_control("g0"), with_control("g1")])
    world.allocate("g0")
    assert {} == world.closed()
    world.discover(a=[with_control("g1"), with_control("g2")])  # g0 has failed
    assert {} == world.closed()


def test_devices_without_hardware_exclude_nobody(world: World) -> None:
    world.discover(a=[device("one")])
    world.allocate("one")
    world.discover(b=[device("one")])
    assert "" == world.allocate("one", resource=B)


# How devices are compared.


def test_a_pod_keeps_the_device_number_that_it_was_given(world: World) -> None:
    world.discover(a=[device("keyboard", "number 1"), device("mouse", "number 2")])
    world.allocate("keyboard")
    world.discover(a=[device("keyboard", "number 2"), device("mouse", "number 1")])
    assert {"mouse": "held as keyboard by a pod"} == world.closed()


def test_a_node_that_entries_share_is_kept_from_another_device_that_gets_its_number(
    world: World,
) -> None:
    def sticks(name: str, node: str) -> list[dp.Device]:
        return [device(f"{name}{entry}", node) for entry in "ab"]

    first, second = "/dev/not-there/1", "/dev/not-there/2"
    world.discover(a=sticks("held", first))
    world.allocate("helda")
    assert {} == world.closed()
    world.discover(a=[*sticks("held", second), *sticks("other", first)])
    expected = "held as helda by a pod"
    assert {"othera": expected, "otherb": expected} == world.closed()


def test_nodes_are_known_by_device_number(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "below").symlink_to("/dev/zero")
    (tmp_path / "folder" / "dangling").symlink_to("/not/there")
    (tmp_path / "file").touch()
    assert {"c1:5"} == pieces.named_by(["/dev/zero"]) == pieces.named_by([str(link)])
    assert "c1:5" in pieces.named_by([str(tmp_path / "folder")])
    assert {str(tmp_path / "file")} == pieces.named_by([str(tmp_path / "file")])
    assert {"/not/there"} == pieces.named_by(["/not/../not/there"])
    assert {"/dev/\0"} == pieces.named_by(["/dev/\0"])
    assert {"pci/0000:01:00.0"} == pieces.named_by([pieces.pci("0000:01:00.0")])


def test_control_nodes_are_no_pieces(tmp_path: Path) -> None:
    control = [tmp_path / "kfd", tmp_path / "vfio" / "vfio", tmp_path / "infiniband" / "rdma_cm"]
    for path in control:
        path.parent.mkdir(exist_ok=True)
        path.symlink_to("/dev/zero")
    assert set() == pieces.named_by(["/dev/null", *map(str, control)])
    assert {str(tmp_path / "vfio")} == pieces.named_by([str(tmp_path / "vfio")])


def test_a_large_folder_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_MOST_BELOW", 1)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "node").symlink_to("/dev/zero" if name == "one" else "/dev/full")
    assert 2 == len(pieces.named_by([str(tmp_path)]))


# What became of a device that is not discovered any more.


def test_an_old_id_says_what_became_of_its_device(world: World) -> None:
    zero, full, away = (dp.DeviceNode(f"/dev/{name}") for name in ("zero", "full", "not-there"))
    became = world.ownership.hardware.became
    old = dp.Device("zero", nodes=[zero])
    assert "its device node is there, but nothing offers it now" == became((A, "zero"), old)
    assert "" == became((A, "gone"), dp.Device("gone", nodes=[away]))
    world.discover(a=[dp.Device("zero+full", nodes=[zero, full])], b=[device("uuid", "pci/1")])
    assert "its device node is offered as zero+full now" == became((A, "zero"), old)
    offered = "its hardware is offered as uuid of x.io/b now"
    assert offered == became((A, "0"), device("0", "pci/1"))


# What was given out before the process started.


def test_a_device_that_was_held_before_the_start_is_known_by_what_was_recorded(
    world: World,
) -> None:
    given = Given(["/dev/zero"], [(A, "zero")])
    world.pods((A, "zero"), recorded={(A, "zero"): given})
    nodes = [dp.DeviceNode("/dev/zero"), dp.DeviceNode("/dev/full")]
    world.discover(a=[dp.Device("zero+full", nodes=nodes)])
    assert {"zero+full": "held as zero by pod default/pod-zero"} == world.closed()
    became = world.ownership.hardware.became((A, "zero"), dp.Device("zero"))
    assert "its device node is offered as zero+full now" == became
    world.pods()
    assert {} == world.closed()


def test_what_a_pod_can_open_by_its_old_node_is_kept_from_others_after_a_restart(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "tty0"
    world.pods((A, "stick"), recorded={(A, "stick"): Given([str(path)], [(A, "stick")])})
    stick = dp.Device("stick", nodes=[dp.DeviceNode("/dev/full")])
    world.discover(a=[stick])
    assert {} == world.closed()
    path.symlink_to("/dev/zero")  # another one gets the number that it had
    world.discover(a=[stick, dp.Device("other", nodes=[dp.DeviceNode(str(path))])])
    assert {"other": "held as stick by pod default/pod-stick"} == world.closed()


def test_a_node_that_plugins_add_for_all_is_offered_after_a_restart(world: World) -> None:
    given = Given(["/dev/zero", "/dev/full"], [(A, "stick")])
    world.pods((A, "stick"), recorded={(A, "stick"): given})
    world.discover(a=[dp.Device("stick", nodes=[dp.DeviceNode("/dev/zero")])])
    world.discover("Q", b=[dp.Device("full", nodes=[dp.DeviceNode("/dev/full")])])
    assert {} == world.closed("x.io/b")


def test_the_next_pod_does_not_have_what_was_recorded_of_the_one_before(world: World) -> None:
    """Whose end no poll saw, so that the device was held all the time."""
    stick, given = (A, "stick"), Given(["/dev/zero"], [(A, "stick")])
    world.pods(stick, recorded={stick: given})
    world.discover(a=[dp.Device("stick", nodes=[dp.DeviceNode("/dev/full")])])
    world.allocate("stick")
    world.pods(stick)
    other = dp.Device("other", nodes=[dp.DeviceNode("/dev/zero")])
    world.discover("Q", b=[other])
    assert {} == world.closed("x.io/b")


def test_devices_that_were_given_out_together_do_not_exclude_each_other(world: World) -> None:
    together = [(A, "old"), (A, "full")]
    given = Given(["/dev/zero", "/dev/full"], together)
    world.pods(*together, recorded=dict.fromkeys(together, given))
    full = dp.Device("full", nodes=[dp.DeviceNode("/dev/full")])
    world.discover(a=[full])
    assert {} == world.closed()
    world.discover(a=[full, dp.Device("new", nodes=[dp.DeviceNode("/dev/zero")])])
    assert {"new"} == set(world.closed())


def test_a_claim_that_was_prepared_before_the_start_keeps_its_hardware() -> None:
    dra = World("dra")
    given = {(A, "zero"): Given(["/dev/zero"], [(A, "zero")])}
    dra.ownership.restore({CLAIM: [(A, "zero")]}, records=given.get)
    dra.discover(a=[dp.Device("renamed", nodes=[dp.DeviceNode("/dev/zero")])])
    assert "renamed is held as zero by claim default/one" == dra.prepare(OTHER, (A, "renamed"))


# What it costs.


def test_nothing_is_reported_while_nothing_overlaps(world: World) -> None:
    world.discover(a=[device("one", "p"), device("two", "q")])
    world.discover(a=[device("one", "p"), device("two", "q")])
    world.allocate("one")
    world.pods((A, "one"))
    world.pods()
    assert 0 == world.news
    assert not world.ownership.wanted


def test_changes_of_what_is_closed_are_reported_once(rivals: World) -> None:
    rivals.allocate("gpu")
    assert (1, {"function": "held as gpu of x.io/a by a pod"}) == (rivals.news, rivals.closed(B))
    rivals.pods((A, "gpu"))
    named = {"function": "held as gpu of x.io/a by pod default/pod-gpu"}
    assert (2, named) == (rivals.news, rivals.closed(B))
    rivals.pods()  # first it is not known any more which pod it is, then there is none
    assert (4, {}) == (rivals.news, rivals.closed(B))
