"""Triggers of a discovery: changes of files, and events from a plugin's ``changes``."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from deviceplugin._platform import hooks
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._platform.pollable_event import PollableEvent
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_LISTEN_AGAIN: Final = 5.0
"""Seconds until ``changes()`` is called again after it ended."""
_UNHEARD: Final = (1.0, 10.0)
"""Seconds after a call of ``changes()`` at which to discover if it has not yielded yet."""


class Triggers:
    """The triggers of one plugin's discoveries. All triggers before ``clear`` count as one."""

    def __init__(self, watcher: FileWatcher) -> None:
        self._watcher = watcher
        self._given = threading.Event()
        self._watches: dict[Path, Callable[[], None]] = {}
        self._named: set[Path] = set()
        """The watched paths, as the plugin named them."""
        self._large = Problems(log)
        self._lock = threading.Lock()
        self._listening: threading.Event | None = None
        self._due: list[float] = []
        """Times at which to discover although there was no trigger."""

    def fire(self) -> None:
        self._given.set()

    def clear(self) -> None:
        self._given.clear()

    def wait(self, seconds: float) -> None:
        """Wait for a trigger, ``seconds`` at most; less if ``changes`` may not be listening yet."""
        with self._lock:
            due = min(self._due, default=float("inf"))
        self._given.wait(min(seconds, max(0.0, due - time.monotonic())))
        with self._lock:
            self._due = [at for at in self._due if at > time.monotonic()]

    def watch(self, paths: Iterable[Path | str]) -> None:
        """Trigger a discovery whenever one of ``paths`` changes, and stop watching all others."""
        trees = {path: expanded(path) for path in map(Path, paths)}
        wanted = {path for tree in trees.values() for path in tree[:MAX_DIRECTORIES]}
        for path in sorted(trees.keys() - self._named):
            if advice := blind_spot(path, wanted):
                fields = {"path": str(path), "advice": advice}
                log.info("watched path not fully covered", extra=fields)
        self._log_large(trees)
        self._named = set(trees)
        for path in self._watches.keys() - wanted:
            self._watches.pop(path)()
        for path in wanted - self._watches.keys():
            self._watches[path] = self._watcher.watch(path, lambda _name: self.fire())
            self.fire()  # it may have changed before it was watched

    def _log_large(self, trees: Mapping[Path, Sequence[Path]]) -> None:
        large = {str(path) for path, tree in trees.items() if len(tree) > MAX_DIRECTORIES}
        event = "too many directories to watch"
        advice = "name those that matter"
        for path in large:
            self._large.say(path, event, path=path, watched=MAX_DIRECTORIES, advice=advice)
        self._large.keep(large)

    def listen(self, plugin: Plugin) -> None:
        """Trigger a discovery whenever ``plugin.changes`` yields. Stop listening to other plugins.

        Events before it listens are not lost. Either it yields once when it begins to listen, or
        discoveries are made a while after the call.
        """
        stop = PollableEvent() if overrides(plugin, "changes") else None
        with self._lock:
            before, self._listening = self._listening, stop
            self._due = []
        if before is not None:
            before.set()
        if stop is not None:
            self._expect(stop)
            given = plugin, stop
            threading.Thread(target=self._listen, args=given, name="changes", daemon=True).start()

    def _listen(self, plugin: Plugin, stop: threading.Event) -> None:
        def pass_on() -> None:
            for _ in plugin.changes(stop):
                self._expect(stop, ())  # it listens
                self.fire()

        problems = Problems(log)
        name = type(plugin).__name__
        while not stop.is_set():
            try:
                hooks.call(pass_on)
            except DevicePluginError as error:
                problems.say("changes", "changes() failed", plugin=name, error=str(error))
            self._expect(stop, ())
            stop.wait(_LISTEN_AGAIN)
            self._expect(stop)
            self.fire()  # because events may have been missed while nobody listened

    def _expect(self, stop: threading.Event, delays: Iterable[float] = _UNHEARD) -> None:
        """Discover after ``delays``, unless another plugin is listened to by now."""
        now = time.monotonic()
        with self._lock:
            if self._listening is stop:
                self._due = [now + delay for delay in delays]

    def close(self) -> None:
        with self._lock:
            if self._listening is not None:
                self._listening.set()
        self.watch(())


MAX_DIRECTORIES: Final = 256
"""Most directories that are watched for one path that ends in ``/**``."""
_BELOW: Final = "**"
_SILENT: Final = ("/sys", "/proc")
"""File systems for which inotify does not report changes by the kernel."""


def expanded(path: Path) -> list[Path]:
    """Return ``path`` or, if it ends in ``/**``, its directory and all directories below.

    Those near the top come first. If there are more than ``MAX_DIRECTORIES``, one more than that
    are returned. Links are not followed, and other file systems are not entered.
    """
    if path.name != _BELOW:
        return [path]
    found, waiting = [path.parent], deque([path.parent])
    try:
        device = path.parent.stat().st_dev
    except OSError:
        return found
    while waiting and len(found) <= MAX_DIRECTORIES:
        for one in _directories(waiting.popleft()):
            with suppress(OSError):  # removed meanwhile
                if one.lstat().st_dev == device:
                    found.append(one)
                    waiting.append(one)
    return found[: MAX_DIRECTORIES + 1]


def blind_spot(path: Path, watched: Collection[Path]) -> str:
    """Return advice if changes of ``path`` give no event, although ``watched`` are; or ""."""
    if any(path.is_relative_to(top) for top in _SILENT):
        return f"the kernel reports no changes in /{path.parts[1]}: use changes()"
    try:
        with os.scandir(path) as entries:
            mixed = any(not entry.is_dir(follow_symlinks=False) for entry in entries)
    except OSError:  # not a directory
        return ""
    below = [] if mixed else _directories(path)
    if not below or any(one in watched for one in below):
        return ""
    return f"it has only sub-directories, which are not watched: write {path}/** to watch them too"


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # removed meanwhile, or unreadable
        return []
    return [path / name for name in sorted(names)]
