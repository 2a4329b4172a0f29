"""Random faults of a tree of files such as sysfs: contents, names, links, and calls that fail."""

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hardware.failing_calls import Calls

CONTENTS: Final = (
    *(b"", b"\n", b" ", b"0", b"-1", b"0x", b"0xzz", b"x", b"None", b"[]", b"{}", b"null"),
    *(b"9" * 30, b"9" * 5000, b"0x" + b"f" * 40, b"1e5", b"1_000", "\u0661".encode()),
    *(b"DEVNAME=", b"DEVNAME=a\0b\n", b"DEVNAME=../etc/passwd\n", b"DEVNAME=\xff\n"),
    *(b"\0" * 40, b"\xff\xfe\x80", b"a b c d e f g h\n" * 9, b"a" * 70_000, bytes(range(256))),
)
NAMES: Final = (
    *(b"0", b"x", b" ", b".hidden", b"a,b", b"a\nb", b"\xff\xfe", b"n" * 255, b"-1", b"card", b"9"),
    *(b"renderD", b"card99999999999", b"renderD128.bak", b"0000:ff:1f.7", b"%s{id}", b"\xd9\xa1"),
)
ERRORS: Final = (
    *(errno.EIO, errno.ESTALE, errno.ENODEV, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOENT),
    *(errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EOVERFLOW, errno.EINVAL),
)
_FAKE: Final = "nvml"
"""The directory of files of a fake driver, which no driver has."""
_Undo = list[Callable[[], object]]


class Fault(NamedTuple):
    """What was done, and to which path."""

    what: str
    path: Path


class Faults:
    """Does bad things to the files below ``root``, and undoes them.

    Args:
        root: The tree. What is there now is what is there without a fault.
        calls: Those that fail.
        chance: Chooses.
        aside: A directory of the same file system, for what is replaced.
    """

    def __init__(self, root: Path, calls: Calls, chance: random.Random, aside: Path) -> None:
        self._calls = calls
        self._chance = chance
        self._aside = aside
        self.paths = sorted(
            Path(at, name)
            for at, folders, files in os.walk(root)
            for name in (*folders, *files)
            if root / _FAKE not in (Path(at), Path(at, name))
        )
        """All that faults can be of."""
        self._counters = [path for path in self.paths if path.name == "uevent_seqnum"]
        self._events = 1000

    @contextmanager
    def some(self) -> Iterator[list[Fault]]:
        """Do up to three bad things, and undo them."""
        deeds = (self._write, self._write, self._remove, self._link, self._empty, self._add)
        done: list[Fault] = []
        undo: _Undo = []
        try:
            for _ in range(self._chance.choice((1, 1, 2, 3))):
                path = self._chance.choice(self.paths)
                if not os.path.lexists(path) or path.parent.is_symlink():
                    continue  # by another fault
                if self._chance.random() < 0.4:
                    done.append(self._fail(path))
                else:
                    done.append(self._chance.choice(deeds)(path, undo))
            if undo:
                self._event()
            yield done
        finally:
            self._calls.mend()
            for one in reversed(undo):
                one()
            if undo:
                self._event()

    def _event(self) -> None:
        """Count an event of the kernel: it sends one whenever its devices change."""
        self._events += 1
        for path in self._counters:
            if path.is_file():
                path.write_text(f"{self._events}\n")

    def _fail(self, path: Path) -> Fault:
        number = self._chance.choice(ERRORS)
        self._calls.fail(path, number)
        return Fault(errno.errorcode[number], path)

    def _write(self, path: Path, undo: _Undo) -> Fault:
        content = self._chance.choice((*CONTENTS, self._chance.randbytes(20)))
        self._replace(path, undo)
        path.write_bytes(content)
        return Fault(f"content {content[:20]!r}", path)

    def _remove(self, path: Path, undo: _Undo) -> Fault:
        self._replace(path, undo)
        return Fault("removed", path)

    def _empty(self, path: Path, undo: _Undo) -> Fault:
        self._replace(path, undo)
        path.mkdir()
        return Fault("empty directory", path)

    def _link(self, path: Path, undo: _Undo) -> Fault:
        """Make a link of it: a loop, to nothing, out of the tree, or to something else in it."""
        other = str(self._chance.choice(self.paths))
        target = self._chance.choice((path.name, "nothing", "/etc", "..", other, other))
        self._replace(path, undo)
        path.symlink_to(target)
        return Fault(f"link to {target}", path)

    def _add(self, path: Path, undo: _Undo) -> Fault:
        """Have a link with an odd name beside it that leads to it."""
        new = path.with_name(os.fsdecode(self._chance.choice(NAMES)))
        if not os.path.lexists(new):
            new.symlink_to(path.name)
            undo.append(new.unlink)
        return Fault(f"link to {path.name}", new)

    def _replace(self, path: Path, undo: _Undo) -> None:
        aside = self._aside / str(len(undo))
        path.rename(aside)

        def restore() -> None:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            aside.rename(path)

        undo.append(restore)
