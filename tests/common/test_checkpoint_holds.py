"""What the kubelet's checkpoint says of pods that PodResources does not list, or not yet."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deviceplugin._attribution import checkpoint as _checkpoint
from deviceplugin._attribution.checkpoint import Checkpoint, CheckpointHolds
from deviceplugin._attribution.podresources import Hold, Holdings, PodName
from deviceplugin._attribution.stale import Given
from deviceplugin._platform.checkpoint import FILE_NAME, Entry, Recorded, checksum
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager import records as simulated
from deviceplugin_testing.simulator._device_manager.records import Grant, HeldGrant

R, OTHER = "x.io/dev", "x.io/other"
OURS = {R}
UNSOUND = "kubelet checkpoint ignored"


RESPONSE = pb.ContainerAllocateResponse(
    envs={"A": "<&>\u2028\u00fc"}, devices=[pb.DeviceSpec(host_path="/dev/a")]
)
ANSWER = RESPONSE.SerializeToString()


def write(directory: Path, *entries: Entry) -> None:
    """Write a checkpoint as the kubelet does, with two entries for two NUMA nodes each."""
    simulated.write_checkpoint(
        directory,
        [
            HeldGrant(
                e.pod, e.container, e.resource, Grant({0: tuple(e.devices[0]), -1: ()}, RESPONSE)
            )
            for e in entries
        ],
        {R: ["a", "b"]},
    )


def init(device: str, pod: str = "u1") -> Entry:
    return of("first", device, pod)


def main(device: str, pod: str = "u1") -> Entry:
    return of("main", device, pod)


def of(container: str, device: str, pod: str, resource: str = R) -> Entry:
    return Entry(pod, container, resource, {0: (device,), -1: ()}, ANSWER)


def listing(*holds: tuple[str, str], complete: bool = True, pods: str = "p") -> Holdings:
    """Return what is held, as containers and devices; each letter of ``pods`` is a pod."""
    held = frozenset(Hold(R, device, "default", "p", container) for container, device in holds)
    return Holdings(held, named(pods), complete=complete)


def named(pods: str) -> frozenset[PodName]:
    return frozenset(("default", name) for name in pods)


def devices(*ids: str) -> frozenset[tuple[str, str]]:
    return frozenset((R, device) for device in ids)


@pytest.fixture
def recorded(tmp_path: Path) -> CheckpointHolds:
    return CheckpointHolds(Checkpoint(tmp_path))


# The file


def test_what_a_kubelet_writes_is_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for entries in ([], [init("a")], [init("a"), main("b"), main("c", "u2")]):
        write(tmp_path, *entries)
        assert entries == list(checkpoint.entries())


def test_a_file_is_read_once_and_a_new_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    usual = _checkpoint._decoded

    def decoded(text: bytes) -> Recorded:
        read.append(text)
        return usual(text)

    monkeypatch.setattr(_checkpoint, "_decoded", decoded)
    checkpoint = Checkpoint(tmp_path)
    write(tmp_path, init("a"))
    assert checkpoint.entries() == checkpoint.entries()
    assert 1 == len(read)
    write(tmp_path, init("b"))
    assert [init("b")] == list(checkpoint.entries())
    (tmp_path / FILE_NAME).unlink()
    assert [] == list(checkpoint.entries())


def change(path: Path, **fields: object) -> None:
    """Change fields of the first entry of a checkpoint, and give it the right checksum."""
    data = json.loads(path.read_text())["Data"]
    data["PodDeviceEntries"][0].update(fields)
    path.write_text(json.dumps({"Data": data, "Checksum": checksum(data)}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text(""),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text(path.read_text()[:-1]),
        lambda path: path.write_text(path.read_text().replace('"u1"', '"u2"')),
        lambda path: path.write_text('{"Data": null, "Checksum": 0}'),
        lambda path: path.write_text('{"Data": {"PodDeviceEntries": 7}, "Checksum": 0}'),
        lambda path: path.write_text(path.read_text().replace('"AllocResp":"', '"AllocResp":"!')),
        lambda path: path.write_text(path.read_text() + " " * _checkpoint.MAX_BYTES),
    ],
)
def test_what_is_not_sound_is_not_known_and_logged_once(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, init("a"))
    path = tmp_path / FILE_NAME
    damage(path)
    checkpoint = Checkpoint(tmp_path)
    for number in range(3):
        os.utime(path, (number, number))
        assert [] == list(checkpoint.entries())
    assert [UNSOUND] == [record.getMessage() for record in caplog.records]
    write(tmp_path, init("a"))
    assert [init("a")] == list(checkpoint.entries())


@pytest.mark.parametrize("key", ["PodUID", "ContainerName", "ResourceName"])
def test_a_name_that_is_no_string_makes_the_file_unknown(
    tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    holds = CheckpointHolds(Checkpoint(tmp_path))
    for odd in (["a"], {"a": 1}, 7, None, True):
        write(tmp_path, init("a"))
        change(tmp_path / FILE_NAME, **{key: odd})
        assert (devices(), False) == (holds.held(listing(), OURS), holds.is_free(OURS))
    assert [UNSOUND] * 5 == [record.getMessage() for record in caplog.records]


def test_nothing_and_null_are_no_entries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert [] == list(checkpoint.entries())
    for changed in ({"DeviceIDs": None}, {"DeviceIDs": {"0": None}}, {"AllocResp": None}):
        write(tmp_path, init("a"), init("b"))
        change(tmp_path / FILE_NAME, **changed)
        assert init("b") in checkpoint.entries()
    assert [] == caplog.records


# What it says of pods


def test_it_shows_that_nothing_is_held_only_of_resources_that_are_known(
    tmp_path: Path, recorded: CheckpointHolds
) -> None:
    write(tmp_path, init("a"))
    assert not recorded.is_free([]), "before the first discovery"
    assert not recorded.is_free(OURS)
    assert recorded.is_free([OTHER])


def test_what_no_pod_is_listed_with_may_be_held_by_any_pod_before_the_first_allocation(
    tmp_path: Path, recorded: CheckpointHolds
) -> None:
    write(tmp_path, init("a"), main("b", "u2"), of("main", "x", "u2", OTHER))
    assert devices("a", "b") == recorded.held(Holdings(), OURS), "where nothing is listed at all"
    for pods in ("op", "pq"):
        assert devices("a", "b") == recorded.held(listing(pods=pods), OURS)
    assert devices() == recorded.held(listing(pods="q"), OURS)


def test_a_pod_is_there_while_it_is_listed_with_one_container_and_then_holds_nothing(
    tmp_path: Path, recorded: CheckpointHolds
) -> None:
    write(tmp_path, init("a"), main("b"), of("side", "c", "u1"), main("d", "u2"))
    recorded.held(listing(("main", "b"), ("side", "c"), ("main", "d")), OURS)
    left = [listing(("side", "c"), ("main", "d")), listing(("main", "d")), listing()]
    expected = [devices("a", "b", "c", "d"), devices("d"), devices()]
    assert expected == [recorded.held(one, OURS) for one in left]


def test_a_device_that_was_allocated_again_is_the_new_pods(
    tmp_path: Path, recorded: CheckpointHolds
) -> None:
    write(tmp_path, main("a"))
    recorded.held(listing(("main", "a")), OURS)
    recorded.allocated(devices("a", "b"), named(""))
    write(tmp_path, main("a", "u2"))  # an init container of the same name
    assert devices("a") == recorded.held(listing(), OURS)
    recorded.listed(recorded.moment)
    assert devices("a") == recorded.held(listing(), OURS)


def test_a_pod_that_was_never_listed_with_a_device_ends_with_all_that_were_new(
    tmp_path: Path, recorded: CheckpointHolds
) -> None:
    recorded.allocated(devices("a"), named("op"))
    write(tmp_path, init("a"))
    assert devices("a") == recorded.held(listing(pods="op"), OURS), "by a list from before"
    recorded.listed(recorded.moment)
    assert devices("a") == recorded.held(listing(pods="opqr"), OURS)
    assert devices("a") == recorded.held(listing(pods="oqs"), OURS)
    assert devices("a") == recorded.held(listing(pods="", complete=False), OURS)
    assert devices() == recorded.held(listing(pods="ops"), OURS), "s is newer"
    assert devices() == recorded.held(listing(pods="opq"), OURS)


def test_a_pod_may_have_a_device_like_the_one_whose_name_it_has(
    tmp_path: Path, recorded: CheckpointHolds
) -> None:
    recorded.allocated(devices("a"), named("o"))
    recorded.listed(recorded.moment)
    write(tmp_path, init("a"))
    assert devices("a") == recorded.held(listing(pods="op"), OURS)
    for device in ("b", "a"):  # p is deleted and created again, and no list was without it
        recorded.allocated(devices(device), named("op"))
        recorded.listed(recorded.moment)
        write(tmp_path, init(device, "u2"))
        assert devices(device) == recorded.held(listing(pods="op"), OURS)


@pytest.mark.parametrize(("before", "left"), [(True, ["a", "b"]), (False, [])])
def test_a_pod_that_was_rejected_ends_by_a_list_that_was_asked_for_after_it(
    tmp_path: Path, recorded: CheckpointHolds, before: bool, left: Sequence[str]
) -> None:
    moment = recorded.moment
    recorded.allocated(devices("a", "b"), named("op"))
    recorded.listed(moment if before else recorded.moment)
    write(tmp_path, init("a"), main("b"))
    assert devices(*left) == recorded.held(listing(pods="op"), OURS)


def test_what_a_container_was_given_is_recorded(tmp_path: Path) -> None:
    write(tmp_path, init("a"), init("b"), main("c"))
    recorded = CheckpointHolds(Checkpoint(tmp_path))
    assert Given(["/dev/a"], [(R, "a"), (R, "b")], "u1") == recorded.given((R, "a"))
    assert Given(["/dev/a"], [(R, "c")], "u1") == recorded.given((R, "c"))
    assert recorded.given((R, "d")) is None
    assert () == _checkpoint.paths(b"\xff"), "an answer that cannot be read"
