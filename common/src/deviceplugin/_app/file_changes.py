"""Configuration files that are not what was read: an edit, another version of a ConfigMap."""

import errno
import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from deviceplugin._platform.waiting import Waiter

SETTLE: Final = 0.5
"""Seconds that a file must stay as it is before it is read: whoever writes it may be at it."""
_MOST_ROUNDS: Final = 20
"""Of a file that never stays as it is, what it says then is read."""
_CONFIG_MAP: Final = "..data"
"""The link that the kubelet moves when the ConfigMap in a directory is another one."""

Contents = Mapping[Path, bytes | None]
"""What tells what files say; None for one that is not there, or cannot be read."""

Watch = Callable[[Path, Callable[[str | None], None]], Callable[[], None]]
"""Calls the function after each change of the path; returns what ends the watch."""


class FileChanges:
    """Notices when files have settled to something else than was noted of them.

    What counts is what a file says, so that a file that is written again with the same content, or
    linked to, is no change. One that is not there is waited for.
    """

    def __init__(self, waiter: Waiter | None = None) -> None:
        self._waiter = waiter or Waiter()
        self._lock = threading.Lock()
        self._noted: dict[Path, bytes | None] = {}
        self._watches: dict[Path, list[Callable[[], None]]] = {}
        self._watch: Watch | None = None

    def note(self, paths: Iterable[Path]) -> None:
        """Note what files say, and those of before; call it before they are read.

        So no change is missed, and none is reported twice.
        """
        with self._lock:
            self._noted = _contents({**dict.fromkeys(paths), **self._noted})
        self._watch_all()

    def add(self, paths: Iterable[Path]) -> None:
        """Note what further files say; those that are noted already stay as they were read."""
        with self._lock:
            self._noted = {**_contents(set(paths) - self._noted.keys()), **self._noted}
        self._watch_all()

    def start(self, watch: Watch, ask: Callable[[], None]) -> None:
        """Call ``ask`` at changes, in a thread of its own, until ``stop``."""
        self._watch = watch
        self._watch_all()
        threading.Thread(target=self._run, args=(ask,), name="configuration", daemon=True).start()

    def stop(self) -> None:
        """Call it no longer."""
        self._waiter.end()

    def _watch_all(self) -> None:
        for path in self._noted.keys() - self._watches.keys() if self._watch else ():
            assert self._watch
            self._watches[path] = [
                self._watch(path, lambda _name: self._waiter.poke()),
                # In which a link on the way to the file may be replaced.
                self._watch(path.parent, self._poke_for({path.name, _CONFIG_MAP})),
            ]
        self._waiter.poke()  # it may have changed before the watch was there

    def _poke_for(self, names: set[str]) -> Callable[[str | None], None]:
        def poke(name: str | None) -> None:
            if name is None or name in names:
                self._waiter.poke()

        return poke

    def _run(self, ask: Callable[[], None]) -> None:
        while not self._waiter.is_over():
            self._waiter.until_poked()
            if self._news(self._look()) and self._news(self._settled()):
                ask()

    def _look(self) -> Contents:
        with self._lock:
            paths = list(self._noted)
        return _contents(paths)

    def _settled(self) -> Contents:
        """Return what the files say once they have stayed like that for a while."""
        found = self._look()
        for _ in range(_MOST_ROUNDS):
            self._waiter.pause(SETTLE)
            before, found = found, self._look()
            if found == before:
                break
        return found

    def _news(self, found: Contents) -> bool:
        if self._waiter.is_over():
            return False
        with self._lock:
            return any(
                content is not None and content != self._noted[path]
                for path, content in found.items()
            )


def _contents(paths: Iterable[Path]) -> dict[Path, bytes | None]:
    found: dict[Path, bytes | None] = {}
    for path in paths:
        try:
            found[path] = _digest(path)
        except OSError:
            found[path] = None
    return found


def _digest(path: Path) -> bytes:
    """Return what tells what a file says, or the files of a directory, such as a ConfigMap's."""
    if not path.is_dir():
        if not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")  # what is read of a pipe is gone
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    files = sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".")
    return b"".join(one.name.encode() + b"/" + _digest(one) for one in files)
