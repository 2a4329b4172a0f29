"""When a configuration file is read again, and when it is not."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

from deviceplugin._app.reload import SETTLE, FileChanges
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._platform.mounts import MOUNTINFO
from deviceplugin._platform.waiting import Waiter
from held_clock import HeldClock
from patience import PATIENCE, eventually


class Reader:
    """Reads a file whenever it is asked to, by a clock that a test holds."""

    def __init__(self, path: Path, mountinfo: Path = MOUNTINFO) -> None:
        self.path = path
        self.clock = HeldClock()
        self.read: Queue[str] = Queue()
        self._callbacks: list[Callable[[str | None], None]] = []
        self.changes = FileChanges(Waiter(self.clock), mountinfo)
        self.changes.note([path])

    def watch(self, _path: Path, callback: Callable[[str | None], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: None

    def reload(self) -> None:
        self.changes.note([])
        self.read.put(self.path.read_text())

    def notice(self) -> None:
        """Tell of a change."""
        for callback in self._callbacks:
            callback(None)

    def write_here(self, text: str) -> None:
        self.path.write_text(text)
        self.notice()

    def write(self, text: str) -> None:
        """Put another file in its place, which is whole at once."""
        new = self.path.with_name("new")
        new.write_text(text)
        new.rename(self.path)
        self.notice()

    def next(self) -> str:
        """Return what is read next, once the file has settled."""

        def is_read() -> bool:
            if self.read.empty():  # the wait may have begun while it was half written
                self.clock.end_waits()
            return not self.read.empty()

        assert SETTLE == self.clock.skip_wait()
        eventually(is_read)
        return self.read.get()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    path = tmp_path / "config.yaml"
    path.write_text("one")
    reader = Reader(path)
    reader.changes.start(reader.watch, reader.reload)
    yield reader
    reader.changes.stop()


def test_a_file_that_says_something_else_is_read_once(reader: Reader) -> None:
    reader.write("two")
    assert "two" == reader.next()
    reader.notice()
    reader.write("two")
    reader.write("three")
    assert "three" == reader.next()
    assert reader.read.empty()


def test_a_file_that_is_written_in_two_pieces_is_read_when_it_is_whole(reader: Reader) -> None:
    with reader.path.open("w") as file:
        file.write("first half, ")
        file.flush()
        reader.notice()
        reader.clock.wait_for_wait()
        file.write("second half")
    assert SETTLE == reader.clock.skip_wait()  # it was another one meanwhile
    assert "first half, second half" == reader.next()
    assert reader.read.empty()


def test_a_file_that_goes_is_waited_for(reader: Reader) -> None:
    reader.path.unlink()
    reader.notice()
    reader.write("one")
    reader.path.unlink()
    reader.notice()
    reader.write("two")
    assert "two" == reader.next()
    assert reader.read.empty()


def test_a_change_while_it_is_read_is_not_missed_for_what_is_noted_then(tmp_path: Path) -> None:
    path, named = tmp_path / "config.yaml", tmp_path / "named"
    path.write_text("one")
    reader = Reader(path)
    path.write_text("changed while it was read")
    reader.changes.add([path, named])
    reader.changes.start(reader.watch, reader.reload)
    assert "changed while it was read" == reader.next()
    reader.changes.stop()


def test_that_a_file_is_replaced_which_is_mounted_by_itself_is_noticed(tmp_path: Path) -> None:
    path, mountinfo = tmp_path / "config.yaml", tmp_path / "mountinfo"
    path.write_text("one")
    line = f"2 1 8:1 /home/config.yaml{{}} {path} rw - ext4 /dev/sda1 rw"
    mountinfo.write_text(line.format(""))
    reader = Reader(path, mountinfo)
    reader.changes.start(reader.watch, reader.reload)
    assert [] == reader.changes.fixed(())
    reader.write_here("two")
    assert "two" == reader.next()
    mountinfo.write_text(line.format("//deleted"))
    reader.notice()
    assert "two" == reader.read.get(timeout=PATIENCE)
    (told,) = reader.changes.fixed(())
    assert "another file has replaced it" in told
    reader.notice()
    reader.write_here("three")
    assert "three" == reader.next()
    reader.changes.stop()


def test_a_pipe_is_left_to_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    changes = FileChanges()
    changes.note([path])
    descriptor = os.open(path, os.O_RDWR)
    os.write(descriptor, b"text")
    changes.note([path])
    assert b"text" == os.read(descriptor, 5)
    os.close(descriptor)


def test_a_file_that_never_settles_is_read_at_last(reader: Reader) -> None:
    reader.write("0")
    for number in range(1, 21):
        reader.clock.wait_for_wait()
        reader.path.write_text(str(number))
        reader.clock.skip_wait()
    assert "20" == reader.read.get(timeout=PATIENCE)


# With the watcher itself.


@contextmanager
def watched(path: Path) -> Iterator[Queue[str]]:
    """Give what is read of a file, by events alone; of a directory, its name."""
    watcher = FileWatcher(3600)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    read: Queue[str] = Queue()
    changes = FileChanges()
    changes.note([path])

    def reload() -> None:
        changes.note([])
        read.put(path.read_text() if path.is_file() else path.name)

    changes.start(watcher.watch, reload)
    try:
        yield read
    finally:
        changes.stop()
        watcher.stop()
        thread.join()


def swap(folder: Path, text: str, *, keep: bool) -> None:
    """Write a file as the kubelet writes a ConfigMap."""
    old = sorted(folder.glob("..v*"))
    version = folder / f"..v{time.monotonic_ns()}"
    version.mkdir(parents=True)
    (version / "config.yaml").write_text(text)
    (folder / "..data_tmp").symlink_to(version.name)
    (folder / "..data_tmp").rename(folder / "..data")
    if not old:
        (folder / "config.yaml").symlink_to("..data/config.yaml")
    for one in [] if keep else old:
        shutil.rmtree(one)


@pytest.mark.parametrize("keep", [False, True])
def test_another_version_of_a_config_map_is_read(tmp_path: Path, keep: bool) -> None:
    swap(tmp_path / "map", "one", keep=keep)
    with watched(tmp_path / "map/config.yaml") as read:
        for text in ("two", "three", "four"):
            swap(tmp_path / "map", text, keep=keep)
            assert text == read.get(timeout=PATIENCE)


def test_a_directory_says_what_its_files_say(tmp_path: Path) -> None:
    swap(tmp_path / "map", "one", keep=False)
    with watched(tmp_path / "map") as read:
        swap(tmp_path / "map", "two", keep=False)
        assert "map" == read.get(timeout=PATIENCE)
