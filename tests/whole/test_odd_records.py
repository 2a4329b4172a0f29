"""One odd file among those that the core reads costs none of the others, and ends nothing."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin._attribution.checkpoint import Checkpoint
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.record import Record, RecordedDevice
from deviceplugin._dra.claims.records import Records
from deviceplugin._platform.checkpoint import FILE_NAME
from deviceplugin.kit.state import State
from deviceplugin_gpu.container.nvidia_ctk import Toolkit
from deviceplugin_testing.simulator._device_manager import records as simulated
from hardware.failing_calls import failing_calls
from hardware.faults import Faults

ROUNDS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    return path


def rounds(folder: Path) -> Iterator[set[str]]:
    """Have faults of the files in a folder; yield the names of those that are as they were."""
    aside = folder.with_name("aside")
    aside.mkdir()
    with failing_calls(folder) as calls:
        faults = Faults(folder, calls, random.Random(1), aside)
        for _ in range(ROUNDS):
            with faults.some() as done, calls.on():
                targets = {Path(one.what.removeprefix("link to ")).name for one in done}
                odd = {one.path.name for one in done} | targets
                yield {path.name for path in faults.paths} - odd


def record(uid: str) -> Record:
    device = RecordedDevice("example.com/gopher", uid, "one", "node/pool", uid)
    return Record(Claim("default", uid, uid), "boot", "prepared", [device])


def test_a_record_of_a_claim_costs_no_other_claim(folder: Path) -> None:
    known = {uid: record(uid) for uid in ("uid-1", "uid-2", "uid-3")}
    writing = Records(folder)
    for whole in rounds_of_records(folder, writing, known):
        found = Records(folder).load()
        kept = {Path(name).stem for name in whole}
        assert {uid: known[uid] for uid in kept & {*known}}.items() <= found.items()


def rounds_of_records(
    folder: Path, writing: Records, known: dict[str, Record]
) -> Iterator[set[str]]:
    """Yield as ``rounds`` does, with whole files each time: what is odd is set aside."""
    for one in known.values():
        writing.write(one)
    for whole in rounds(folder):
        yield whole
        for path in folder.glob("*.bad"):
            path.rename(path.with_suffix(""))


def test_a_checkpoint_is_known_or_not_and_ends_nothing(folder: Path) -> None:
    simulated.write_checkpoint(folder, [], {"example.com/gopher": ["a", "b"]})
    checkpoint = Checkpoint(folder)
    for whole in rounds(folder):
        assert [] == list(checkpoint.entries())
        assert checkpoint.is_known or FILE_NAME not in whole


def test_a_state_file_is_read_or_is_empty(folder: Path) -> None:
    state = State(folder / "state.json", 1)
    assert state.save({"a": 1})
    for whole in rounds(folder):
        found: Any = State(folder / "state.json", 1).load(lambda one: one["a"], None)
        assert found in ({1} if "state.json" in whole else {1, None})
        for path in folder.glob("*.unreadable"):
            path.rename(path.with_suffix(""))


def test_a_specification_costs_no_other_specification(folder: Path) -> None:
    text = '{"kind": "nvidia.com/gpu", "devices": [{"name": "%s", "containerEdits": {}}]}'
    for number in range(3):
        (folder / f"nvidia{number}.json").write_text(text % number)
    for whole in rounds(folder):
        found = Toolkit([folder]).find().by_name
        assert {name[6] for name in whole} <= {*found}
