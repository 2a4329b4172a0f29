"""Files are whole or as before, whoever writes them, and whatever happens meanwhile."""

import errno
import fcntl
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest

from deviceplugin.kit import files
from full_disk import failing_syncs, full_disk
from patience import PATIENCE

DIE_WHILE_WRITING = """
import os, sys
from pathlib import Path
from deviceplugin.kit import files
os.fsync = lambda _: os.kill(os.getpid(), 9)
files.write(Path(sys.argv[1]), "of the killed")
"""
LEFT = f".file.{'0' * 32}.draft"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_its_directory_and_its_mode_before_which_nobody_else_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, modes = os.fchmod, list[int]()

    def noting(descriptor: int, mode: int) -> None:
        modes.append(os.fstat(descriptor).st_mode)
        change(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", noting)
    path = tmp_path / "a" / "b" / "file"
    before = os.umask(0o077)
    try:
        assert files.write(path, "ä\n", mode=0o664)
    finally:
        os.umask(before)
    assert ("ä\n", 0o100664) == (path.read_text(encoding="utf-8"), path.stat().st_mode)
    assert ([0o100600], ["file"]) == (modes, names(path.parent))


@pytest.mark.parametrize("durable", [True, False])
def test_another_mode_is_a_change(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    files.write(path, "a", mode=0o600, durable=durable)
    assert files.write(path, "a", mode=0o755, durable=durable)
    assert 0o100755 == path.stat().st_mode


def test_a_link_is_replaced_and_not_followed_and_a_pipe_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("a")
    (tmp_path / "link").symlink_to("other")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "link", tmp_path / "pipe"):
        assert files.write(path, "b")
        assert ("b", True) == (path.read_text(), stat.S_ISREG(path.lstat().st_mode))
    assert "a" == (tmp_path / "other").read_text()


def test_a_directory_in_its_place_is_an_error_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (path / "in the way").mkdir(parents=True)
    with pytest.raises(IsADirectoryError) as error:
        files.write(path, "a")
    assert str(path) == error.value.filename
    with pytest.raises(IsADirectoryError):
        files.remove(path)
    assert ["file"] == names(tmp_path)


def test_a_file_in_place_of_its_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").touch()
    with pytest.raises(FileExistsError) as error:
        files.write(tmp_path / "folder" / "file", "a")
    assert str(tmp_path / "folder") == str(error.value.filename)


def test_a_full_disk_is_one_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write(path, "old")
    with full_disk(room=4), pytest.raises(OSError, match=re.escape(str(path))) as error:
        files.write(path, "longer")
    assert ("File too large", str(path)) == (error.value.strerror, error.value.filename)
    assert ("old", ["file"]) == (path.read_text(), names(tmp_path))


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write(path, "old")
    subprocess.run([sys.executable, "-c", DIE_WHILE_WRITING, str(path)], check=False)
    assert "old" == path.read_text()
    (left,) = {*names(tmp_path)} - {"file"}
    assert len(LEFT) == len(left)
    (tmp_path / f".other{left.removeprefix('.file')}").touch()
    (tmp_path / ".file.draft").touch()
    files.write(path, "new")
    assert {".file.draft", f".other{left.removeprefix('.file')}", "file"} == set(names(tmp_path))


def test_the_draft_of_a_writer_that_lives_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, arrived, go_on = tmp_path / "file", Event(), Event()
    sync = os.fsync

    def slow(_descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        arrived.set()
        go_on.wait(PATIENCE)

    monkeypatch.setattr(os, "fsync", slow)
    thread = Thread(target=files.write, args=(path, "of the slow"))
    thread.start()
    assert arrived.wait(PATIENCE)
    files.write(path, "of the quick")
    assert "of the quick" == path.read_text()
    go_on.set()
    thread.join(PATIENCE)
    assert ("of the slow", ["file"]) == (path.read_text(), names(tmp_path))


def test_a_draft_that_another_takes_for_abandoned_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer comes between the making of a draft and its lock."""
    lock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        assert not files.remove(tmp_path / "file")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert files.write(tmp_path / "file", "a")
    assert ("a", ["file"]) == ((tmp_path / "file").read_text(), names(tmp_path))


def test_a_writer_whose_drafts_are_always_taken_gives_up_and_one_without_locks_leaves_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LEFT).touch()
    errors = [OSError(38, "Function not implemented"), BlockingIOError()]

    def refuse(_descriptor: int, _operation: int) -> None:
        raise errors[0]

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert files.write(tmp_path / "file", "a")
    assert [LEFT, "file"] == names(tmp_path)
    del errors[0]
    with pytest.raises(OSError, match=r"Device or resource busy: '.*/file'"):
        files.write(tmp_path / "file", "b")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.ENOSPC])
def test_a_directory_that_cannot_be_synced_is_an_error_if_the_disk_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with failing_syncs(monkeypatch, number):
        if number == errno.EINVAL:  # the file system has no such thing
            assert files.write(tmp_path / "file", "a")
            return
        with pytest.raises(OSError, match=f"{os.strerror(number)}: '{tmp_path}/file'"):
            files.write(tmp_path / "file", "a")
        with pytest.raises(OSError, match=f"{os.strerror(number)}: '{tmp_path}'"):
            files.sync(tmp_path)


def test_many_writers_and_readers_see_whole_files_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [letter * 9000 for letter in "abcd"]
    files.write(path, contents[0])

    def write(content: str) -> None:
        for number in range(50):
            files.write(path, content, mode=0o600 + number % 8, durable=False)

    def read(_: int) -> set[str]:
        return {path.read_text() for _ in range(200)}

    with ThreadPoolExecutor(6) as pool:
        writes, reads = pool.map(write, contents), pool.map(read, range(2))
        assert [None] * 4 == list(writes)
        assert set().union(*reads) <= set(contents)
    assert ["file"] == names(tmp_path)


def test_a_removed_file_takes_its_drafts_along(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert not files.remove(tmp_path / "none" / "file")
    files.write(path, "a")
    (tmp_path / LEFT).touch()
    assert files.remove(path)
    assert [] == names(tmp_path)
    assert not files.remove(path)


def test_what_is_there_already_is_written_only_when_it_is_wanted_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert [True, False, True] == [files.write(path, content) for content in (b"b", "b", "a")]
    before = path.stat().st_ino
    assert not files.write(path, "a")
    assert before == path.stat().st_ino
    kept = path.open()  # so that its inode is not used for the next file
    assert files.write(path, "a", again=True)
    assert before != path.stat().st_ino
    kept.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A 1-é", ""),
        ("...", ""),
        ("", "is empty"),
        (".", "is not the name of a file"),
        ("..", "is not the name of a file"),
        ("a/b", "is not the name of a file"),
        ("a\0", "has control characters or unreadable bytes"),
        ("a\n", "has control characters or unreadable bytes"),
        ("\udcff", "has control characters or unreadable bytes"),
        ("a\ufffd", "has control characters or unreadable bytes"),
        ("é" * 127 + "e", ""),
        ("é" * 128, "has 256 bytes, of at most 255"),
    ],
)
def test_what_a_device_says_is_a_name_in_a_path_or_is_not(text: str, problem: str) -> None:
    assert problem == files.name_problem(text)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/", ""),
        ("/srv/..a/.b", ""),
        ("", "is not absolute"),
        ("srv", "is not absolute"),
        *(
            (path, "is not normalized: it has '..', '.' or an empty part")
            for path in ("//", "//srv", "/srv/", "/srv//a", "/./srv", "/srv/.", "/srv/..", "/..")
        ),
    ],
)
def test_a_path_is_normalized_or_is_not(path: str, problem: str) -> None:
    assert problem == files.path_problem(path)
