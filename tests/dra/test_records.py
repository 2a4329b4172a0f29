"""Records of claims on a disk that is full, is read by another version, or was damaged."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.record import Record, RecordedDevice, is_uid
from deviceplugin._dra.claims.records import Records
from full_disk import full_disk

DEVICE = RecordedDevice(
    "example.com/gopher",
    "0000:3b:00.0",
    "one",
    "node/pool",
    "0000-3b",
    share="s",
    cdi_names=("a/b=c",),
)


def record(uid: str = "uid-1", **more: Any) -> Record:
    fields = {"boot": "boot", "state": "prepared", "devices": [DEVICE], "document": {"kind": "a/b"}}
    return Record(claim=Claim("default", "one", uid), **{**fields, **more})


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "claims")


def loaded(records: Records) -> dict[str, Record]:
    return dict(Records(records.directory).load())


def test_a_record_is_read_as_it_was_written_for_root_alone(records: Records) -> None:
    assert {} == records.load()
    admin = record("uid-2", state="preparing", devices=[], document=None)
    for one in (record(), admin):
        records.write(one)
    (records.directory / ".uid-3.json").touch()  # a draft
    assert 0o600 == (records.directory / "uid-1.json").stat().st_mode & 0o777
    assert {"uid-1": record(), "uid-2": admin} == loaded(records) == dict(records.all())
    records.remove("uid-1")
    records.remove("uid-1")
    assert {"uid-2": admin} == loaded(records) == dict(records.all())


def test_a_record_names_the_device_nodes_of_its_containers() -> None:
    nodes = [{"path": "/dev/a"}, {"path": "/dev/b", "hostPath": "/dev/c"}]
    edits: list[dict[str, Any]] = [{"deviceNodes": nodes}, {}]
    document = {"devices": [{"containerEdits": one} for one in edits]}
    assert ["/dev/a", "/dev/c"] == list(record(document=document).paths)
    assert [] == list(record(document=None).paths)
    assert [] == list(record(document={"devices": [{}]}).paths)


def test_only_what_a_container_may_use_waits_for_the_disk(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    records.write(record(state="preparing"))
    records.sync()
    assert [] == synced
    for uid in ("uid-1", "uid-2"):
        records.write(record(uid))
    assert 2 == len(synced)  # the files
    for _ in range(2):
        records.sync()
    assert 3 == len(synced)  # their directory
    for _ in range(2):
        records.remove("uid-1")
        records.sync()
    assert 4 == len(synced)
    Records(records.directory).sync()
    assert 4 == len(synced)
    begun = Records(records.directory)
    assert {"uid-2"} == begun.load().keys()
    begun.sync()
    assert 5 == len(synced)  # what a process has written that was killed before this


def test_admin_access_and_what_the_claim_had_before_are_told_apart() -> None:
    had = RecordedDevice("r", "had", "", "p", "had")
    admin = RecordedDevice("r", "admin", "one", "p", "admin", admin=True)
    both = record(devices=[DEVICE, had, admin])
    assert {DEVICE.key, ("r", "had")} == both.held
    assert [DEVICE, admin] == both.given


def test_what_a_newer_release_adds_is_ignored(records: Records) -> None:
    written = record().written()
    written["more"] = True
    written["devices"][0]["more"] = written["claim"]["more"] = "yes"
    records.directory.mkdir()
    (records.directory / "uid-1.json").write_text(json.dumps(written))
    assert {"uid-1": record()} == records.load()


def changed(**changes: Any) -> str:
    return json.dumps({**record().written(), **changes})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        "\udcff",
        changed(state="lost"),
        changed(version=2),
        changed(version=None),
        changed(document=[]),
        changed(boot=None),
        changed(claim={"namespace": "a", "name": "b"}),
        changed(claim={"namespace": "a", "name": "b", "uid": 3}),
        changed(claim={"namespace": "a", "name": "b", "uid": "another"}),
        changed(devices=None),
        changed(devices=[{}]),
        changed(devices=[{**record().written()["devices"][0], "admin": "yes"}]),
        changed(devices=[{**record().written()["devices"][0], "id": 3}]),
        changed(devices=[{**record().written()["devices"][0], "cdi_names": [3]}]),
        changed(parameters=3),
        changed(parameters=[{}]),
        changed(parameters=[{"request": "a", "resource": "b", "given": None, "used": []}]),
        changed(metadata={"../a": {}}),
        changed(metadata={"a": 3}),
        changed(metadata=[]),
    ],
)
def test_a_file_that_is_not_a_record_is_set_aside_and_the_others_are_used(
    records: Records, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    records.write(record("uid-2"))
    path = records.directory / "uid-1.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    assert {"uid-2"} == records.load().keys()
    assert ["record of a claim cannot be read"] == [one.message for one in caplog.records]
    assert [path.with_name("uid-1.json.bad")] == records.set_aside()
    assert {"uid-2"} == records.load().keys()
    assert 1 == len(caplog.records)
    assert [True, False] == [records.remove_set_aside("uid-1") for _ in range(2)]
    assert [] == records.set_aside()


def test_what_another_process_may_be_able_to_read_is_left_to_it(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    records.write(record("uid-2"))
    path = records.directory / "uid-1.json"
    path.write_text(changed(version=99))
    for _ in range(2):
        assert {"uid-2"} == records.load(moves=False).keys()
        assert [path] == records.set_aside()
    assert [str(path)] == [one.__dict__["kept"] for one in caplog.records]
    path.unlink()  # the other one releases it
    assert [] == records.set_aside()


def test_a_record_of_another_version_is_named_with_what_to_do(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    records.directory.mkdir()
    (records.directory / "uid-1.json").write_text(changed(version=99))
    assert {} == records.load()
    (logged,) = caplog.records
    said = "is of version 99, and this release reads 1: start the release that wrote it"
    assert said == logged.__dict__["error"]
    assert str(records.directory / "uid-1.json") == logged.__dict__["file"]


def test_a_record_that_an_older_release_has_set_aside_is_used_again(records: Records) -> None:
    for uid in ("uid-1", "uid-2"):
        records.write(record(uid))
        path = records.directory / f"{uid}.json"
        path.with_name(f"{uid}.json.bad").write_bytes(path.read_bytes())
    (records.directory / "uid-1.json").unlink()
    (records.directory / "uid-3.json.bad").write_text(changed())  # of another claim
    (records.directory / "uid-4.json.bad").write_text("{")
    assert {"uid-1": record("uid-1"), "uid-2": record("uid-2")} == records.load()
    kept = [f"uid-{number}.json.bad" for number in (2, 3, 4)]
    assert kept == [path.name for path in records.set_aside()]


def test_a_file_that_cannot_even_be_set_aside_hinders_nothing(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    records.write(record("uid-2"))
    (records.directory / "uid-1.json").mkdir()
    (records.directory / "uid-1.json.bad").touch()
    assert {"uid-2"} == records.load().keys()
    assert ["Not a directory" in str(one.__dict__["kept"]) for one in caplog.records] == [True]


def test_a_directory_that_cannot_be_read_is_not_an_empty_one(records: Records) -> None:
    records.directory.write_text("a file")
    with pytest.raises(NotADirectoryError):
        records.load()


def test_on_a_full_disk_the_record_stays_as_it_was(records: Records) -> None:
    records.write(record())
    with full_disk(), pytest.raises(OSError, match="File too large"):
        records.write(record(state="preparing"))
    assert {"uid-1": record()} == loaded(records) == dict(records.all())


@pytest.mark.parametrize("uid", ["", ".", "..", "a/b", "-a", "a-", "a\0", "ä", "a" * 129, "a b"])
def test_only_what_can_be_the_name_of_a_file_is_a_uid(uid: str) -> None:
    assert not is_uid(uid)
    assert is_uid("5f0c7b7e-22a4-4f6f-a14f-5c1f6f0e8d11")


def test_a_directory_that_cannot_be_looked_at_may_have_news(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    records = Records(tmp_path / "file" / "claims")
    records.seen()
    assert records.has_news()
