"""What takes long is marked slow, and ``make test`` leaves it out."""

import os
from pathlib import Path
from typing import Literal

import pytest

import in_memory
import tiers


def report(
    name: str, when: Literal["setup", "call", "teardown"], seconds: float, *marks: str
) -> pytest.TestReport:
    keywords: dict[str, Literal[1]] = dict.fromkeys(marks, 1)
    return pytest.TestReport(
        name, (name, 1, name), keywords, "passed", None, when, duration=seconds
    )


REPORTS = [
    report("tests/a/test_it.py::test_quick", "call", tiers.LIMIT - 0.1),
    report("tests/a/b/test_it.py::test_late", "setup", 1),
    report("tests/a/b/test_it.py::test_late", "call", tiers.LIMIT - 0.5),
    report("e2e/test_it.py::test_later", "call", tiers.LIMIT + 1),
    report("e2e/test_it.py::test_marked", "call", tiers.LIMIT + 2, "slow"),
]


def test_a_test_that_takes_long_and_is_not_marked_is_named() -> None:
    later, late = "e2e/test_it.py::test_later", "tests/a/b/test_it.py::test_late"
    assert [(later, tiers.LIMIT + 1), (late, tiers.LIMIT + 0.5)] == tiers.late(REPORTS)


def test_a_folder_has_a_row() -> None:
    assert ["| `e2e` | 1 | 3 | 1 | 4 |", "| `tests/a` | 2 | 4 | 0 | 0 |"] == tiers.folders(REPORTS)


def test_folders_are_made_in_memory_where_programs_start_and_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(in_memory, "ENOUGH", 0)
    assert in_memory.has_room(tmp_path)
    assert not in_memory.has_room(tmp_path / "missing")
    monkeypatch.setattr(in_memory, "ENOUGH", 2**62)
    assert not in_memory.has_room(tmp_path)
    no_programs = os.statvfs_result((4096, 4096, 2**60, 2**60, 2**60, 0, 0, 0, os.ST_NOEXEC, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: no_programs)
    assert not in_memory.has_room(tmp_path)
