"""A device that is back under another number, while a container has the node that is gone."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.stale import Given
from one_piece.world import A, World

STICK = (A, "stick")
FIRST, SECOND = "/dev/not-there/001/005", "/dev/not-there/001/006"
REPORT = f"stale: pod default/pod-stick has {FIRST}, which is gone: restart the pod"


def stick(*paths: str, device_id: str = "stick") -> dp.Device:
    return dp.Device(device_id, nodes=[dp.DeviceNode(path) for path in paths])


@pytest.fixture
def world() -> World:
    return World()


def replug(world: World, *paths: str) -> None:
    """The device is away, and back with these nodes."""
    world.discover(a=[])
    world.discover(a=[stick(*paths)])


def give(world: World, *paths: str) -> None:
    world.discover(a=[stick(*paths)])
    assert "" == world.allocate("stick")
    world.pods(STICK)


def test_the_pod_is_named_until_it_has_ended_and_the_next_one_gets_the_new_node(
    world: World,
) -> None:
    give(world, FIRST)
    replug(world, SECOND)
    assert ({}, True) == (world.closed(), world.ownership.wanted)
    world.pods(STICK)
    assert {"stick": REPORT} == world.closed()
    assert [False] == [one.by_link for _, one in world.ownership.stale().values()]
    assert {} == world.closed("x.io/b")
    world.pods()
    assert ({}, False) == (world.closed(), world.ownership.wanted)
    give(world, SECOND)
    assert {} == world.closed()


def test_a_pod_that_the_kubelet_does_not_list_is_never_named(world: World) -> None:
    give(world, FIRST)
    world.pods(known=False)
    replug(world, SECOND)
    assert {} == world.closed()


def test_the_next_pod_of_the_same_name_is_not_taken_for_the_one_with_the_old_node(
    world: World,
) -> None:
    give(world, FIRST)
    replug(world, SECOND)
    world.pods(STICK)
    news = world.news
    assert "" == world.allocate("stick")  # before a poll finds the first one gone
    assert news + 1 == world.news
    world.pods(STICK)
    assert {} == world.closed()


def test_a_node_that_goes_again_is_named_after_another_poll(world: World) -> None:
    give(world, FIRST)
    replug(world, SECOND)
    world.pods(STICK)
    replug(world, FIRST)
    replug(world, SECOND)
    assert {} == world.closed()
    world.pods(STICK)
    assert {"stick": REPORT} == world.closed()


def test_an_allocation_that_fails_changes_nothing(world: World) -> None:
    give(world, FIRST)
    replug(world, SECOND)
    with pytest.raises(OSError, match="broken"), world.ownership.allocating(A, ["stick"]):
        raise OSError("broken")
    world.pods(STICK)
    assert {"stick": REPORT} == world.closed()


def test_it_is_known_since_when_and_other_changes_are_reported_once(world: World) -> None:
    give(world, FIRST)
    news = world.news
    replug(world, SECOND)
    world.pods(STICK)
    (before,) = world.ownership.stale().values()
    assert news + 2 == world.news  # another node, and then the name of the pod
    world.discover(a=[stick(SECOND)])
    world.pods(STICK)
    assert ([before], news + 2) == ([*world.ownership.stale().values()], world.news)
    replug(world, FIRST)
    assert {} == world.closed()


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """A link as udev makes them. It leads to /dev/zero."""
    path = tmp_path / "by-id"
    path.symlink_to("/dev/zero")
    return path


def test_a_link_that_leads_to_another_node_is_said_to_be_one(world: World, link: Path) -> None:
    give(world, str(link))
    link.unlink()
    link.symlink_to("/dev/full")
    world.discover(a=[stick(str(link))])
    world.pods(STICK)
    expected = f"stale: pod default/pod-stick has {link} (c1:5), which is gone: restart the pod"
    assert {"stick": expected} == world.closed()
    # Since when containers get the new one, which a discovery finds out later.
    found = [(one.by_link, one.since) for _, one in world.ownership.stale().values()]
    assert [(True, link.lstat().st_ctime)] == found


@pytest.mark.parametrize(
    ("given", "now"),
    [
        pytest.param([FIRST], [FIRST], id="the number is the same"),
        pytest.param([FIRST], [], id="it has no node any more"),
        pytest.param([FIRST], [FIRST, SECOND], id="it has one more"),
        pytest.param([FIRST, SECOND], [SECOND], id="it has one less"),
        pytest.param([FIRST], ["/dev/not-there/ttyUSB0"], id="another kind, none of them seen"),
        pytest.param(["/dev/zero"], ["/dev/shm/../zero"], id="another path to the same node"),
        pytest.param(["/dev/zero"], ["/dev/full"], id="the entry names another node now"),
        pytest.param(["/dev/zero"], ["/dev/not-there/\0"], id="a path that is none"),
        pytest.param(["/dev"], ["/dev/shm"], id="a directory is all that is in it"),
    ],
)
def test_a_pod_whose_node_is_there_or_has_no_successor_is_left_alone(
    world: World, given: Sequence[str], now: Sequence[str]
) -> None:
    give(world, *given)
    replug(world, *now)
    world.pods(STICK)
    assert {} == world.closed()


def test_a_node_that_its_device_still_has_and_does_not_give_is_not_gone(world: World) -> None:
    give(world, FIRST)
    world.discover(a=[replace(stick(SECOND), hardware=[FIRST, SECOND])])
    world.pods(STICK)
    assert {} == world.closed()


def test_a_node_that_was_seen_to_go_is_replaced_by_one_of_any_kind(
    world: World, link: Path
) -> None:
    give(world, str(link))
    link.unlink()
    replug(world, "/dev/full")
    world.pods(STICK)
    assert f"{link} (c1:5)" in world.closed()["stick"]


def test_only_the_share_that_is_held_is_stale(world: World) -> None:
    shares = [replace(stick(FIRST, device_id=f"s::{n}"), share_of="s") for n in (0, 1)]
    world.discover(a=shares)
    world.allocate("s::0")
    world.discover(a=[replace(one, nodes=[dp.DeviceNode(SECOND)]) for one in shares])
    world.pods((A, "s::0"))
    assert {"s::0"} == set(world.closed())


def test_a_hold_is_named_first_so_that_the_pod_is_kept(world: World) -> None:
    give(world, FIRST)
    replug(world, SECOND)
    world.pods(STICK)
    world.ownership.hold({STICK: "held: on a loan"})
    assert {"stick": f"held: on a loan; {REPORT}"} == world.closed()


def test_a_claim_is_named_at_once_until_it_is_prepared_again_or_released() -> None:
    world, claim = World("dra"), Claim("default", "one", "uid-1")
    world.discover(a=[stick(FIRST)])
    assert "" == world.prepare(claim, STICK)
    replug(world, SECOND)
    expected = f"stale: claim default/one has {FIRST}, which is gone: restart the pod"
    assert {"stick": expected} == world.closed()
    news = world.news
    assert "" == world.prepare(claim, STICK)
    assert ({}, news + 1) == (world.closed(), world.news)
    replug(world, FIRST)
    assert {"stick": expected.replace("005", "006")} == world.closed()
    world.ownership.unprepare(claim.uid)
    assert {} == world.closed()


# After a restart of the plugin, what the kubelet has recorded says which nodes were given.


@pytest.mark.parametrize(
    ("recorded", "now", "stale"),
    [
        ([FIRST], [SECOND], True),
        ([FIRST], [FIRST], False),
        ([], [FIRST], False),
        ([FIRST], ["/dev/zero"], False),
        (["/dev/zero"], ["/dev/zero"], False),
        (["/dev/zero"], ["/dev/not-there/zero"], False),
        (["/dev/stdin/../fd"], [SECOND], False),  # a link led anywhere
        ([FIRST, "/dev/full"], [SECOND, "/dev/full"], True),
    ],
)
def test_a_plugin_that_starts_anew_knows_by_the_record_which_nodes_are_gone(
    world: World, recorded: Sequence[str], now: Sequence[str], stale: bool
) -> None:
    records = {STICK: Given(recorded, [STICK])}
    world.pods(STICK, recorded=records)
    world.discover(a=[stick(*now)])
    world.pods(STICK, recorded=records)
    assert ({"stick": REPORT} if stale else {}) == world.closed()


def test_of_devices_given_together_only_the_one_that_is_back_is_stale(world: World) -> None:
    keys = [STICK, (A, "other")]
    records = dict.fromkeys(keys, Given([FIRST, "/dev/not-there/001/009"], keys))
    world.pods(*keys, recorded=records)
    other = stick("/dev/not-there/001/009", device_id="other")
    world.discover(a=[stick(SECOND), other])
    world.pods(*keys, recorded=records)
    assert {"stick": REPORT} == world.closed()


def test_what_was_given_together_is_not_read_once_for_each_pair(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = Counter[object](), os.stat

    def counted(path: Any, **more: Any) -> os.stat_result:
        calls.update([path])
        return real(path, **more)

    monkeypatch.setattr(os, "stat", counted)
    keys = [(A, str(n)) for n in range(100)]
    paths = [f"/dev/not-there/{n}" for n in range(100)]
    world.discover(a=[stick(path, device_id=key[1]) for path, key in zip(paths, keys, strict=True)])
    world.pods(*keys, recorded=dict.fromkeys(keys, Given(paths, keys)))
    assert {} == world.closed()
    assert 0 < calls[paths[0]] < 10


@pytest.mark.skipif(os.getuid() != 0, reason="making device nodes needs root")
@pytest.mark.parametrize("is_of_another", [False, True])
def test_a_node_that_is_there_counts_as_gone_if_another_device_has_it(
    world: World, tmp_path: Path, is_of_another: bool
) -> None:
    paths = [f"{tmp_path}/tty{number}" for number in (0, 1)]
    for minor, path in enumerate(paths, 5):
        os.mknod(path, 0o020600, os.makedev(1, minor))
    records = {STICK: Given(paths[:1], [STICK])}
    world.pods(STICK, recorded=records)
    others = [stick(paths[0], device_id="other")] if is_of_another else []
    world.discover(a=[stick(paths[1]), *others])
    world.pods(STICK, recorded=records)
    assert is_of_another == ("stick" in world.closed())


@pytest.mark.skipif(os.getuid() != 0, reason="making device nodes needs root")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_node_that_is_away_and_made_again_is_not_gone(
    world: World, tmp_path: Path, is_restarted: bool
) -> None:
    path, number = f"{tmp_path}/tty0", os.makedev(1, 5)
    records = {STICK: Given([path], [STICK])} if is_restarted else {}
    os.mknod(path, 0o020600, number)
    if is_restarted:
        world.pods(STICK, recorded=records)
        world.discover(a=[stick(path)])
    else:
        give(world, path)
    for change in (Path.unlink, partial(os.mknod, mode=0o020600, device=number)):
        change(Path(path))  # as while udev works, or a driver is loaded again
        world.discover(a=[stick(path)])
        world.pods(STICK, recorded=records)
        assert {} == world.closed()


def test_two_equal_sticks_that_change_places_have_both_other_nodes(world: World) -> None:
    first, second = "/dev/not-there/ttyUSB0", "/dev/not-there/ttyUSB1"
    world.discover(a=[stick(first), stick(second, device_id="other")])
    world.allocate("stick")
    world.discover(a=[stick(second), stick(first, device_id="other")])
    world.pods(STICK)
    assert {"stick", "other"} == set(world.closed())  # the pod could open the other one
    assert "held as stick" in world.closed()["other"]
