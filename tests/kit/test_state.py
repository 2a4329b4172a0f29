"""State survives restarts, and nothing in its file can keep a plugin from starting."""

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.kit.state import ASIDE, LONGEST, State
from full_disk import full_disk

LOST, UNSAVED = "saved state unreadable", "state not saved"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ports.json"


def read(document: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(count) for name, count in document["ports"].items()}


def loaded(path: Path | None, version: int = 1) -> dict[str, int]:
    return State(path, version).load(read, {})


def problems(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.message, vars(record)["error"]) for record in caplog.records]


def test_what_is_saved_is_known_after_a_restart_and_not_written_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert {} == loaded(path)
    state = State(path, 1)
    assert state.save({"ports": {"a": 1}})
    before = path.stat()
    assert state.save({"ports": {"a": 1}})
    assert (before.st_ino, 0o100600) == (path.stat().st_ino, path.stat().st_mode)
    assert {"a": 1} == loaded(path)
    assert {"version": 1, "ports": {"a": 1}} == json.loads(path.read_text())
    assert [] == caplog.messages


def test_without_a_path_nothing_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    assert not State(None, 1).save({"ports": {"a": 1}})
    assert {} == loaded(None)
    assert [] == caplog.messages


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "Expecting value"),
        (b'{"version": 1, "ports": {"a"', "Expecting ':' delimiter"),
        (b'{"\xff', "codec can't decode"),
        (b"[]", "not a JSON object"),
        (b'{"version": "1", "ports": {}}', "version '1', and this plugin reads 1"),
        (b'{"version": 1}', "'ports'"),
        (b'{"version": 1, "ports": []}', "no attribute 'items'"),
        (b'{"version": 1, "ports": {"a": null}}', "not 'NoneType'"),
        (b'{"version": 1, "ports": {"a": 1e999}}', "infinity"),
        (b"[" * 100_000, "maximum recursion depth"),
        (b" " * (LONGEST + 1), f"more than {LONGEST} bytes"),
    ],
    ids=range(11),
)
def test_a_file_that_makes_no_sense_is_logged_and_set_aside(
    path: Path, caplog: pytest.LogCaptureFixture, content: bytes, error: str
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert {} == loaded(path)
    ((message, text),) = problems(caplog)
    assert (LOST, True) == (message, error in text), text
    aside = path.with_name(path.name + ASIDE)
    assert (content, str(aside)) == (aside.read_bytes(), vars(caplog.records[0])["kept_as"])
    assert not path.exists()
    assert State(path, 1).save({"ports": {"b": 2}})
    assert {"b": 2} == loaded(path)
    assert 1 == len(caplog.records)


def test_a_newer_plugin_that_is_rolled_back_leaves_its_state_for_later(path: Path) -> None:
    State(path, 2).save({"ports": {"new": 2}})
    assert {} == loaded(path, version=1)
    State(path, 1).save({"ports": {"old": 1}})
    path.with_name(path.name + ASIDE).replace(path)
    assert {"new": 2} == loaded(path, version=2)


def test_a_file_without_permission_is_unreadable_and_set_aside(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    State(path, 1).save({"ports": {"a": 1}})

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))  # as root is never told

    with monkeypatch.context() as edge:
        edge.setattr(os, "open", refuse)
        assert {} == loaded(path)
    assert [(LOST, f"[Errno 13] Permission denied: '{path}'")] == problems(caplog)
    assert path.with_name(path.name + ASIDE).exists()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_neither_waited_for_nor_moved(
    path: Path, caplog: pytest.LogCaptureFixture, make: Any
) -> None:
    path.parent.mkdir()
    make(path)
    assert {} == loaded(path)
    assert [LOST] == caplog.messages
    assert vars(caplog.records[0])["kept_as"] is None
    assert [path] == list(path.parent.iterdir())


def test_a_file_that_cannot_be_set_aside_is_logged_all_the_same(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_text("{")
    (path.with_name(path.name + ASIDE) / "in the way").mkdir(parents=True)
    assert {} == loaded(path)
    assert [LOST] == caplog.messages
    assert path.exists()


@pytest.mark.parametrize("too_long", [False, True], ids=["a full disk", "too long to load"])
def test_what_cannot_be_saved_is_logged_once_until_it_can(
    path: Path, caplog: pytest.LogCaptureFixture, *, too_long: bool
) -> None:
    state = State(path, 1)
    state.save({"ports": {"a": 1}})
    for _ in range(2):
        with nullcontext() if too_long else full_disk():
            more = {"x" * (LONGEST if too_long else 1): 1}
            assert [False] * 3 == [state.save({"ports": more}) for _ in range(3)]
        assert {"a": 1} == loaded(path)
        assert state.save({"ports": {"a": 1}})
    assert [(UNSAVED, f"[Errno 27] File too large: '{path}'")] * 2 == problems(caplog)


def test_what_is_not_of_json_is_a_mistake_of_the_author(path: Path) -> None:
    with pytest.raises(TypeError, match="Path is not JSON serializable"):
        State(path, 1).save({"ports": {"a": path}})


def test_one_process_at_a_time_changes_a_file(path: Path) -> None:
    def count(_number: int) -> None:
        state = State(path, 1)
        for _ in range(20):
            with state.alone():
                state.save({"ports": {"a": loaded(path).get("a", 0) + 1}})

    with ThreadPoolExecutor(4) as pool:
        assert [None] * 4 == list(pool.map(count, range(4)))
    assert {"a": 80} == loaded(path)


def test_a_process_that_keeps_a_file_is_not_waited_for_without_end(path: Path) -> None:
    with State(path, 1).alone():
        with pytest.raises(dp.DevicePluginError, match="another process keeps it"):
            State(path, 1).alone(0.0).__enter__()
        with State(path.parent.parent / "elsewhere", 1).alone(0.0), State(None, 1).alone(0.0):
            pass
    with State(path, 1).alone(0.0):
        assert State(path, 1).save({"ports": {}})


def test_nobody_is_kept_from_a_file_where_there_are_no_locks(path: Path) -> None:
    path.parent.write_text("a file in the folder's place")
    with State(path, 1).alone(), State(path, 1).alone(0.0):
        assert {} == loaded(path)
