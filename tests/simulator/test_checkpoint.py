"""The checkpoint file: format, checksum, and what a restart makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from deviceplugin._platform.checkpoint import FILE_NAME, checksum, checksum_text, fnv1a
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Pod
from deviceplugin_testing.simulator._device_manager.records import (
    CheckpointError,
    Grant,
    HeldGrant,
    read_checkpoint,
    write_checkpoint,
)
from kubelets.equipped import PREFERS, Kubelet, R, ids, near


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "PodUID": "U",
        "ContainerName": "C",
        "ResourceName": "R",
        "DeviceIDs": {"10": ["d"], "-1": ["a"], "0": ["c", "b"]},
        "AllocResp": "CgY=",
    } | changes


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
)
def test_the_hash_is_32_bit_fnv_1a(data: bytes, expected: int) -> None:
    assert expected == fnv1a(data)


def test_the_checksum_is_that_of_a_text_with_types() -> None:
    data = {
        "PodDeviceEntries": [entry(), entry(PodUID="V", DeviceIDs={}, AllocResp="")],
        "RegisteredDevices": {"z": [], "a": ["1", "0"]},
    }
    assert checksum_text(data) == (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)["
        "{PodUID:(string)U ContainerName:(string)C ResourceName:(string)R "
        "DeviceIDs:(checkpoint.DevicesPerNUMA)map[-1:[a] 0:[c b] 10:[d]] "
        "AllocResp:([]uint8)[10 6]} "
        "{PodUID:(string)V ContainerName:(string)C ResourceName:(string)R "
        "DeviceIDs:(checkpoint.DevicesPerNUMA)map[] AllocResp:([]uint8)[]}] "
        "RegisteredDevices:(map[string][]string)map[a:[1 0] z:[]]}"
    )
    assert checksum(data) == fnv1a(checksum_text(data).encode())


def test_nothing_and_empty_differ_in_the_checksum() -> None:
    assert checksum_text({"PodDeviceEntries": None, "RegisteredDevices": None}) == (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)<nil> "
        "RegisteredDevices:(map[string][]string)<nil>}"
    )
    nothing = entry(DeviceIDs=None, AllocResp=None)
    text = checksum_text({"PodDeviceEntries": [nothing], "RegisteredDevices": {"a": None}})
    assert "DeviceIDs:(checkpoint.DevicesPerNUMA)<nil> AllocResp:([]uint8)<nil>}" in text
    assert text.endswith("RegisteredDevices:(map[string][]string)map[a:<nil>]}")
    empty: dict[str, Any] = {"PodDeviceEntries": [], "RegisteredDevices": {}}
    assert "PodDevicesEntry)[] RegisteredDevices:(map[string][]string)map[]}" in checksum_text(
        empty
    )


def test_the_checksum_stays_what_it_was() -> None:
    """The formula gives the right sums for files of real kubelets; this one is made up."""
    alone = {"PodDeviceEntries": None, "RegisteredDevices": {"example.com/dev": ["one"]}}
    assert 3490793686 == checksum(alone)


# As upstream's TestCheckpoint.
def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    response = pb.ContainerAllocateResponse(envs={"A": "1"})
    entries = (
        HeldGrant("u1", "c", "x.io/one", Grant({-1: ("a", "b")}, response)),
        HeldGrant("u2", "c", "x.io/two", Grant({0: ("a",), 1: ("a", "ü")}, response)),
    )
    write_checkpoint(tmp_path, entries, {"x.io/two": {"a"}, "x.io/three": set()})
    checkpoint = read_checkpoint(tmp_path)
    assert entries == checkpoint.entries
    assert {"x.io/two", "x.io/three"} == checkpoint.registered
    assert [FILE_NAME] == [path.name for path in tmp_path.iterdir()]
    assert "\n" not in (tmp_path / FILE_NAME).read_text()


def test_a_checkpoint_without_entries_says_null(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="checkpoint is not found"):
        read_checkpoint(tmp_path)
    write_checkpoint(tmp_path, [], {})
    document = json.loads((tmp_path / FILE_NAME).read_text())
    assert {"PodDeviceEntries": None, "RegisteredDevices": {}} == document["Data"]
    assert () == read_checkpoint(tmp_path).entries


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}',
        '{"Data":{"PodDeviceEntries":[{}],"RegisteredDevices":{}},"Checksum":1}',
        '{"Data":null,"Checksum":1}',
    ],
)
def test_a_corrupted_checkpoint_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(CheckpointError, match="checkpoint is corrupted"):
        read_checkpoint(tmp_path)


def test_an_entry_whose_answer_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    data = {"PodDeviceEntries": [entry(AllocResp="AAAA")], "RegisteredDevices": {}}
    (tmp_path / FILE_NAME).write_text(json.dumps({"Data": data, "Checksum": checksum(data)}))
    assert () == read_checkpoint(tmp_path).entries


def test_allocations_and_healthy_devices_are_in_the_file(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 0, 1), pb.Device(ID="b", health="Unhealthy")])
    assert kubelet.admit(Pod("p", [*Pod.of("", main={R: 1}).containers], uid="u"))
    data = json.loads((kubelet.plugin_dir / FILE_NAME).read_text())["Data"]
    (written,) = data["PodDeviceEntries"]
    del written["AllocResp"]
    given = {"PodUID": "u", "ContainerName": "main", "ResourceName": R}
    assert {**given, "DeviceIDs": {"0": ["a"], "1": ["a"]}} == written
    assert {R: ["a"]} == data["RegisteredDevices"]


# As upstream's TestGetContainerDevices.
def test_a_device_near_two_nodes_is_on_record_with_both() -> None:
    grant = Grant({0: ("a",), 1: ("a", "b"), -1: ("c",)}, pb.ContainerAllocateResponse())
    assert {"a", "b", "c"} == grant.ids
    assert ([0, 1], [1], []) == (grant.nodes_of("a"), grant.nodes_of("b"), grant.nodes_of("c"))


@pytest.mark.parametrize("text", [None, "{}"])
def test_without_checkpoint_devices_in_use_look_free(kubelet: Kubelet, text: str | None) -> None:
    kubelet.plugin(options=PREFERS)
    kubelet.tick()
    kubelet.started()
    kubelet.stop()
    if text is None:
        (kubelet.plugin_dir / FILE_NAME).unlink()
    else:
        (kubelet.plugin_dir / FILE_NAME).write_text(text)
    kubelet.start()
    kubelet.plugin(name="2", options=PREFERS)
    assert {"a"} == ids(kubelet.admit(Pod.of("q", main={R: 1})))
