"""Files that the kernel cannot read: calls that fail, for everything in this process."""

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self
from unittest.mock import patch

_STAT, _LSTAT, _SCANDIR = os.stat, os.lstat, os.scandir
_PATHS: Final = (str, bytes, os.PathLike)


class Calls:
    """Lets calls about some files below ``root`` fail, by whatever path they are reached."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._failing: dict[tuple[int, int], int] = {}
        self._spared = 0
        self._is_on = False
        self.count = 0
        """Calls about files below ``root``, since the last ``on``."""

    def fail(self, path: Path, error: int) -> None:
        """Let calls about the file or link at ``path`` fail with this number."""
        status = _LSTAT(path)
        self._failing[status.st_dev, status.st_ino] = error

    def mend(self) -> None:
        """Let all calls succeed."""
        self._failing.clear()

    @contextmanager
    def on(self, spared: int = 0) -> Iterator[None]:
        """Let calls fail meanwhile, but for the first ``spared`` ones.

        So a file can fail that has been found already, as when its device is pulled.
        """
        self.count, self._spared, self._is_on = 0, spared, True
        try:
            yield
        finally:
            self._is_on = False

    def check(self, path: Any, *, follow: bool = True) -> None:
        """Raise OSError if a call about ``path`` fails."""
        if not self._is_on or not isinstance(path, _PATHS):
            return
        if not os.fsdecode(path).startswith(self._root):
            return
        self.count += 1
        if not self._failing or self.count <= self._spared:
            return
        for look in (_LSTAT, _STAT) if follow else (_LSTAT,):
            with suppress(OSError, ValueError):
                status = look(path)
                if number := self._failing.get((status.st_dev, status.st_ino)):
                    break
        else:
            return
        raise OSError(number, os.strerror(number), os.fsdecode(path))


@contextmanager
def failing_calls(root: Path) -> Iterator[Calls]:
    """Let calls about files below ``root`` go through what this yields."""
    calls = Calls(root)

    def checked(function: Callable[..., Any], *, follow: bool = True) -> Callable[..., Any]:
        def call(path: Any = ".", *words: Any, **named: Any) -> Any:
            calls.check(path, follow=named.get("follow_symlinks", follow))
            return function(path, *words, **named)

        return call

    def scandir(path: Any = ".") -> Any:
        calls.check(path)
        return _Entries(_SCANDIR(path), calls)

    with (
        patch.object(os, "stat", checked(_STAT)),
        patch.object(os, "lstat", checked(_LSTAT, follow=False)),
        patch.object(os, "readlink", checked(os.readlink, follow=False)),
        patch.object(os, "listdir", checked(os.listdir)),
        patch.object(os, "open", checked(os.open)),
        patch.object(io, "open", checked(io.open)),
        patch.object(builtins, "open", checked(builtins.open)),
        patch.object(os, "scandir", scandir),
    ):
        yield calls


class _Entries:
    """What ``os.scandir`` returns."""

    def __init__(self, entries: Any, calls: Calls) -> None:
        self._entries = entries
        self._calls = calls
        self.close = entries.close

    def __iter__(self) -> "_Entries":
        return self

    def __next__(self) -> "_Entry":
        return _Entry(next(self._entries), self._calls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Entry(os.PathLike[Any]):
    """An entry of a directory whose type the file system does not say, as network ones may not."""

    def __init__(self, entry: "os.DirEntry[Any]", calls: Calls) -> None:
        self._entry = entry
        self._calls = calls
        self.name, self.path, self.inode = entry.name, entry.path, entry.inode

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        self._calls.check(self.path, follow=follow_symlinks)
        return self._entry.stat(follow_symlinks=follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(self._entry.is_dir, follow_symlinks=follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(self._entry.is_file, follow_symlinks=follow_symlinks)

    def is_symlink(self) -> bool:
        return self._entry.is_symlink()

    def _is(self, kind: Callable[..., bool], *, follow_symlinks: bool) -> bool:
        try:
            self._calls.check(self.path, follow=follow_symlinks)
        except FileNotFoundError:
            return False
        return kind(follow_symlinks=follow_symlinks)
