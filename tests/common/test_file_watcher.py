import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import inotify_simple
import pytest
from typing_extensions import override

from deviceplugin._platform.file_watcher import FileWatcher
from patience import PATIENCE, eventually

NEVER = 365 * 24 * 3600.0
"""Longer than the kernel can count."""
SOON = 0.01
OTHERS: set[str] = set()


class Changes:
    """A callback that keeps what it is told."""

    def __init__(self) -> None:
        self._told: SimpleQueue[str | None] = SimpleQueue()

    def __call__(self, name: str | None) -> None:
        self._told.put(name)

    def next(self) -> str | None:
        return self._told.get(timeout=PATIENCE)

    def until(self, name: str | None) -> None:
        """Wait until told of ``name``; what comes before does not matter."""
        while self.next() != name:
            pass

    def rest(self) -> list[str | None]:
        rest = []
        try:
            while True:
                rest.append(self._told.get_nowait())
        except Empty:
            return rest


@contextmanager
def running(watcher: FileWatcher) -> Iterator[FileWatcher]:
    """Run ``watcher`` in a thread, and stop it at the end."""
    errors = []

    def run() -> None:
        try:
            watcher.run()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [] == errors


def watches() -> dict[str, int]:
    """The inotify watches of this process, by file descriptor."""
    found = {}
    for path in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):  # it has been closed meanwhile
            found[path.name] = path.read_text().count("inotify wd:")
    return found


@pytest.fixture(autouse=True)
def _others() -> None:
    """Find what others have, such as a plugin of an earlier test that is about to end."""
    OTHERS.clear()
    OTHERS.update(name for name, count in watches().items() if count)


def watches_in_the_kernel() -> int:
    """How many inotify watches the test has."""
    return sum(count for name, count in watches().items() if name not in OTHERS)


def failing(number: int) -> Callable[..., NoReturn]:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


def inotify_instances() -> int:
    """How many inotify instances this process has."""
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum("anon_inode:inotify" == str(path.readlink()) for path in links)


def test_entries_that_come_change_and_go_are_told_by_name(tmp_path: Path) -> None:
    changes = Changes()
    with running(FileWatcher(NEVER)) as watcher:
        watcher.watch(tmp_path, changes)
        (tmp_path / "a").touch()
        assert "a" == changes.next()
        changes.rest()
        (tmp_path / "a").chmod(0o600)
        changes.until("a")
        (tmp_path / "a").rename(tmp_path / "b")
        changes.until("b")
        (tmp_path / "b").unlink()
        assert "b" == changes.next()


def test_a_file_that_is_replaced_is_followed(tmp_path: Path) -> None:
    changes, file = Changes(), tmp_path / "file"
    file.touch()
    with running(FileWatcher(NEVER)) as watcher:
        watcher.watch(file, changes)
        for text in ("one", "two", "three"):
            (tmp_path / "new").write_text(text)
            (tmp_path / "new").replace(file)
            assert changes.next() is None
            file.write_text(text)
            assert changes.next() is None


def test_a_directory_that_is_replaced_by_renaming_is_followed(tmp_path: Path) -> None:
    changes, directory = Changes(), tmp_path / "d"
    directory.mkdir()
    (tmp_path / "new").mkdir()
    with running(FileWatcher(NEVER)) as watcher:
        watcher.watch(directory, changes)
        directory.rename(tmp_path / "old")
        assert changes.next() is None
        (tmp_path / "new").rename(directory)
        assert changes.next() is None
        (directory / "a").touch()
        changes.until("a")
        (tmp_path / "old/b").touch()
        (directory / "c").touch()
        changes.until("c")
    assert "b" not in changes.rest()


def test_a_directory_that_vanishes_is_told_once_and_followed_when_it_is_made_anew(
    tmp_path: Path,
) -> None:
    changes, directory = Changes(), tmp_path / "d"
    directory.mkdir()
    watcher = FileWatcher(NEVER)
    watcher.watch(directory, changes)
    directory.rmdir()
    directory.mkdir()  # on many file systems it has the number of the old one
    with running(watcher):
        assert changes.next() is None
        (directory / "a").touch()
        changes.until("a")
        changes.rest()
        (directory / "a").unlink()
        changes.until("a")
        directory.rmdir()
        assert changes.next() is None
        (tmp_path / "beside").touch()
        directory.mkdir()
        assert changes.next() is None
    assert [] == changes.rest()


def test_a_path_is_waited_for_however_many_directories_are_missing(tmp_path: Path) -> None:
    changes, path = Changes(), tmp_path / "a/b/c"
    with running(FileWatcher(NEVER)) as watcher:
        watcher.watch(path, changes)
        (tmp_path / "a").mkdir()
        (tmp_path / "a/b").mkdir()
        (tmp_path / "a/b/beside").touch()
        path.mkdir()
        assert changes.next() is None

        def is_told() -> bool:  # from when on the path itself is watched
            (path / "entry").touch()
            return "entry" in changes.rest()

        eventually(is_told)


@pytest.mark.parametrize(("path", "comes", "before"), [("a/b/c", "a/b", "a"), ("d", "d", "d")])
def test_a_directory_that_comes_just_before_it_or_the_one_above_is_watched_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, comes: str, before: str
) -> None:
    changes, real = Changes(), inotify_simple.INotify.add_watch

    def add_watch(inotify: Any, watched: Path, mask: int) -> int:
        if watched == tmp_path / before:
            (tmp_path / comes).mkdir(exist_ok=True)  # it was not there when it was asked for
        return int(real(inotify, watched, mask))

    monkeypatch.setattr(inotify_simple.INotify, "add_watch", add_watch)
    with running(FileWatcher(NEVER)) as watcher:
        (tmp_path / "a").mkdir()
        watcher.watch(tmp_path / path, changes)
        assert 1 == watches_in_the_kernel()
        (tmp_path / comes / "c").touch()
        changes.until(None if path == "a/b/c" else "c")


@pytest.mark.parametrize("missing", ["a", "a/b"])
def test_what_has_come_and_gone_before_its_event_is_read_is_told(
    tmp_path: Path, missing: str
) -> None:
    changes, path = Changes(), tmp_path / missing
    watcher = FileWatcher(NEVER)
    watcher.watch(path, changes)
    path.mkdir(parents=True)
    path.rmdir()
    with running(watcher):
        assert changes.next() is None


def test_a_change_of_the_directory_above_alone_is_not_told(tmp_path: Path) -> None:
    changes, watcher = Changes(), FileWatcher(NEVER)
    watcher.watch(tmp_path / "missing", changes)
    tmp_path.chmod(0o700)
    watcher._read()
    assert [] == changes.rest()
    watcher.close()


def test_several_watches_of_one_path_are_one_in_the_kernel_and_are_all_told(tmp_path: Path) -> None:
    first, second = Changes(), Changes()
    with running(FileWatcher(NEVER)) as watcher:
        ends = [watcher.watch(tmp_path, changes) for changes in (first, second)]
        assert 1 == watches_in_the_kernel()
        (tmp_path / "a").touch()
        assert ("a", "a") == (first.next(), second.next())
        ends[0]()
        first.rest()
        (tmp_path / "b").touch()
        second.until("b")
        assert [] == first.rest()
        for end in ends:
            end()
        assert 0 == watches_in_the_kernel()


def test_a_watch_that_is_ended_by_what_it_tells_stays_ended(tmp_path: Path) -> None:
    changes = Changes()
    with running(FileWatcher(NEVER)) as watcher:
        ends = [watcher.watch(tmp_path, lambda _name: end_all()) for _ in range(2)]

        def end_all() -> None:
            for end in ends:
                end()
            changes(None)

        (tmp_path / "a").touch()
        changes.next()
        assert 0 == watches_in_the_kernel()


def test_a_watch_that_another_one_ends_is_told_nothing(tmp_path: Path) -> None:
    told, ended = Changes(), Changes()
    ends: list[Callable[[], None]] = []

    def end_other(name: str | None) -> None:
        ends[0]()
        told(name)

    with running(FileWatcher(SOON, inotify=False)) as watcher:
        watcher.watch(tmp_path / "a", end_other)
        ends.append(watcher.watch(tmp_path / "b", ended))
        (tmp_path / "a").touch()
        told.next()
        (tmp_path / "b").touch()
    assert [] == ended.rest()


@pytest.mark.parametrize("inotify", [True, False])
def test_looks_find_what_no_event_told(tmp_path: Path, *, inotify: bool) -> None:
    changes, ticks = Changes(), Changes()
    (tmp_path / "target").mkdir()
    link = tmp_path / "link"
    link.symlink_to("/none")
    with running(FileWatcher(SOON, inotify=inotify)) as watcher:
        watcher.watch(link, changes)
        watcher.every(lambda: ticks("tick"))
        (tmp_path / "new").symlink_to("target")
        (tmp_path / "new").replace(link)
        assert changes.next() is None
        (tmp_path / "target/a").touch()
        assert changes.next() in {None, "a"}
        link.unlink()
        changes.until(None)
        assert "tick" == ticks.next()
    assert not inotify or 0 == watches_in_the_kernel()


class CountedPath(type(Path())):  # type: ignore[misc]
    """A path that counts how often it is compared."""

    compared = 0

    @override
    def __eq__(self, other: object) -> bool:
        CountedPath.compared += 1
        return super().__eq__(other)  # type: ignore[no-any-return]

    @override
    def __hash__(self) -> int:
        return hash(super().__hash__())


def test_many_watches_are_not_compared_each_with_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountedPath, "compared", 0)
    watcher = FileWatcher(NEVER)
    ends = [watcher.watch(CountedPath(tmp_path, str(i)), Changes()) for i in range(1000)]
    for end in ends:
        end()
    watcher.close()
    assert CountedPath.compared < 10_000


def test_what_comes_beside_a_path_that_is_waited_for_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    add_watch = inotify_simple.INotify.add_watch

    def counted(inotify: Any, path: Path, mask: int) -> Any:
        asked.append(path)
        return add_watch(inotify, path, mask)

    monkeypatch.setattr(inotify_simple.INotify, "add_watch", counted)
    beside, missing = Changes(), Changes()
    with running(FileWatcher(NEVER)) as watcher:
        watcher.watch(tmp_path, beside)
        watcher.watch(tmp_path / "missing" / "one", missing)
        asked.clear()
        (tmp_path / "other").touch()
        assert "other" == beside.next()
    assert ([], []) == (asked, missing.rest())


def test_a_tick_that_is_forgotten_comes_no_more() -> None:
    ticks, others = Changes(), Changes()

    def tick() -> None:
        ticks("tick")

    with running(FileWatcher(SOON)) as watcher:
        watcher.every(tick)
        ticks.next()
        watcher.forget(tick)
        ticks.rest()
        watcher.every(lambda: others("tick"))
        others.next()
        others.next()
        assert len(ticks.rest()) <= 1  # one may have been under way


def test_looks_go_on_while_one_event_follows_another(tmp_path: Path) -> None:
    ticks = Changes()
    with running(FileWatcher(SOON)) as watcher:
        watcher.every(lambda: ticks("tick"))
        watcher.watch(tmp_path, lambda _name: (tmp_path / "a").touch())
        (tmp_path / "a").touch()
        assert ["tick"] * 3 == [ticks.next() for _ in range(3)]


def test_when_events_were_lost_everyone_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, file = Changes(), tmp_path / "file"
    file.touch()
    lost = inotify_simple.Event(-1, inotify_simple.flags.Q_OVERFLOW, 0, "")
    real = inotify_simple.INotify.read
    monkeypatch.setattr(
        inotify_simple.INotify, "read", lambda *_, **__: [lost, *real(*_, **__)][:1]
    )
    with running(FileWatcher(NEVER)) as watcher:
        watcher.watch(tmp_path, changes)
        watcher.watch(tmp_path / "none", changes)
        file.chmod(0o600)  # no look at the directory would show this
        assert [None, None] == [changes.next(), changes.next()]


def test_without_inotify_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    changes = Changes()
    with monkeypatch.context() as patch:
        patch.setattr(inotify_simple, "INotify", failing(errno.EMFILE))
        watcher = FileWatcher(SOON)
    with running(watcher):
        watcher.watch(tmp_path / "a", changes)
        (tmp_path / "a").touch()
        assert changes.next() is None
    assert ["inotify unavailable, polling files every second"] == caplog.messages
    assert "[Errno 24] Too many open files" == vars(caplog.records[0])["error"]


def test_when_no_watches_are_left_files_are_looked_at_until_there_are_some_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    changes = Changes()
    with running(FileWatcher(SOON)) as watcher:
        with monkeypatch.context() as patch:
            patch.setattr(inotify_simple.INotify, "add_watch", failing(errno.ENOSPC))
            for name in ("a", "b"):
                watcher.watch(tmp_path / name, changes)
                (tmp_path / name).touch()
                assert changes.next() is None
        eventually(lambda: not watcher._short, "the watches")
    scarce, again = caplog.records
    assert "[Errno 28] No space left on device" == vars(scarce)["error"]
    assert "inotify available again" == again.message


def test_a_poller_that_has_stopped_gives_everything_back(tmp_path: Path) -> None:
    before = inotify_instances()
    watcher = FileWatcher(NEVER)
    assert before + 1 == inotify_instances()
    with running(watcher):
        end = watcher.watch(tmp_path, Changes())
    assert before == inotify_instances()
    watcher.watch(tmp_path, Changes())()
    end()
    watcher.stop()
    watcher.run()
    watcher.close()
    stopped_first = FileWatcher(NEVER)
    stopped_first.stop()
    stopped_first.run()
