import os
import stat
from pathlib import Path

import pytest

from deviceplugin_testing.tools.bench import _plan, _subject, main
from deviceplugin_testing.tools.bench._figures import BenchError

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")


@pytest.mark.parametrize(
    ("kind", "is_it"),
    [
        ("file", Path.is_file),
        ("directory", Path.is_dir),
        ("link", Path.is_char_device),
        pytest.param("node", Path.is_char_device, marks=ROOT),
    ],
)
def test_entries_of_each_kind_come_and_go(tmp_path: Path, kind: str, is_it: object) -> None:
    devices = _subject.make_devices(tmp_path, 3, kind)
    assert callable(is_it)
    assert [True] * 3 == [is_it(path) for path in sorted(devices.iterdir())]
    assert (kind == "link") == (devices / "dev0").is_symlink()
    for path in devices.iterdir():
        _subject.remove_entry(path)
    assert [] == list(devices.iterdir())


@ROOT
def test_a_node_is_that_of_dev_null(tmp_path: Path) -> None:
    _subject.make_entry(tmp_path / "node", "node")
    status = (tmp_path / "node").lstat()
    assert (Path("/dev/null").stat().st_rdev, 0o600) == (
        status.st_rdev,
        stat.S_IMODE(status.st_mode),
    )


def test_who_may_not_make_nodes_is_told_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refuse)
    with pytest.raises(BenchError, match=r"CAP_MKNOD.* or give --entries link"):
        _subject.make_entry(tmp_path / "node", "node")


@pytest.mark.parametrize("kind", ["directory", pytest.param("node", marks=ROOT)])
def test_changes_of_other_entries_than_files_are_measured(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = ["--starts=1", "--idle=0.1", "--allocations=1", "--changes=2", "--restarts=2"]
    command = [*_plan.many(8, 1).command]
    options = ["--quick", *counts, "--touch={devices_dir}", f"--entries={kind}"]
    assert 0 == main([*options, "--", *command])
    assert "device change to list" in capsys.readouterr().out
