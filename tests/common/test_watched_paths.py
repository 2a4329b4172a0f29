"""Which directories are watched for a path."""

import os
from pathlib import Path

import pytest

from deviceplugin._discovery import triggers


def test_a_path_without_stars_is_itself(tmp_path: Path) -> None:
    assert [tmp_path] == triggers.expanded(tmp_path)


def test_what_does_not_exist_is_waited_for(tmp_path: Path) -> None:
    assert [tmp_path / "none"] == triggers.expanded(tmp_path / "none" / "**")


def test_directories_near_the_top_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1/x", "b/1", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    names = ["a", "b", "c", "a/1", "b/1", "a/1/x"]
    expected = [tmp_path, *(tmp_path / name for name in names)]
    assert expected == triggers.expanded(tmp_path / "**")
    for limit in range(1, 8):
        monkeypatch.setattr(triggers, "MAX_DIRECTORIES", limit)
        assert expected[: limit + 1] == triggers.expanded(tmp_path / "**")


def test_links_are_not_followed_nor_other_file_systems_entered(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    assert [tmp_path, tmp_path / "a"] == triggers.expanded(tmp_path / "**")
    top = Path("/dev")
    found = triggers.expanded(top / "**")
    mounts = [path for path in top.iterdir() if path.is_mount() and path.is_dir()]
    assert not {*found} & {*mounts}


def test_a_directory_that_goes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    lstat = os.lstat

    def gone(path: Path) -> os.stat_result:
        if path.name == "a":
            raise FileNotFoundError
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", gone)
    assert [tmp_path, tmp_path / "b"] == triggers.expanded(tmp_path / "**")


def test_a_directory_that_goes_before_it_is_read_has_nothing_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    scan = os.scandir

    def gone(path: Path) -> object:
        if path.name == "a":
            raise FileNotFoundError
        return scan(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert [tmp_path, tmp_path / "a"] == triggers.expanded(tmp_path / "**")


@pytest.mark.parametrize("names", [(), ("file",), ("sub/", "file")])
def test_a_directory_in_which_something_can_be_seen_has_no_blind_spot(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        path = tmp_path / name
        path.mkdir() if name.endswith("/") else path.touch()
    assert "" == triggers.blind_spot(tmp_path, {tmp_path})


def test_a_file_has_no_blind_spot(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "" == triggers.blind_spot(tmp_path / "file", ())
