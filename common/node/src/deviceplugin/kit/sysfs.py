"""Reading sysfs, with separate errors for what is absent, unreadable or nonsense.

This module needs only the standard library of Python 3.9: a plugin may ship this file to a host
that does not have the framework.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "AbsentError",
    "Kernel",
    "OddError",
    "Sysfs",
    "SysfsError",
    "UnreadableError",
    "natural",
    "shown",
]

_PAGE = 4096
"""Bytes that are read at once. Only binary attributes have more than a page."""
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_DIGITS = re.compile(r"\d+", re.ASCII)
_WIDEST = 63
"""Most digits of a number that natural order compares as a number."""
_NUMBERS = {10: re.compile("-?[0-9]{1,20}"), 16: re.compile("(?:0x)?[0-9a-fA-F]{1,16}")}
_KINDS = {10: "a number", 16: "a hexadecimal number"}


class SysfsError(Exception):
    """Something in sysfs cannot be used. The message is its place, a colon and the reason."""

    def __init__(self, place: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"{os.fspath(place)}: {reason}")
        self.place = os.fspath(place)
        self.reason = reason


class AbsentError(SysfsError):
    """It is not there: it never was, or is gone with its device."""


class UnreadableError(SysfsError):
    """It is there, but reading it fails with EACCES, EPERM, EIO, ENODEV or another error.

    ``errno`` has the number. A later attempt may succeed.
    """

    def __init__(self, place: str | os.PathLike[str], error: OSError) -> None:
        super().__init__(place, error.strerror or str(error))
        self.errno = error.errno


class OddError(SysfsError):
    """It is there and readable, but is not what it should be."""


class Kernel:
    """The system calls that read sysfs. Tests replace them to inject faults.

    Each raises ``OSError`` as the kernel does. ``deviceplugin_testing.fixture.FailingKernel`` fails
    as a test wants it: a test that runs as root cannot use file modes for that.
    """

    def read(self, path: str, most: int = _PAGE) -> bytes:
        """Return the first ``most`` bytes of a file, rounded up to whole pages. It never blocks."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = page = os.read(descriptor, _PAGE)
            while len(page) == _PAGE and len(found) < most:
                page = os.read(descriptor, _PAGE)
                found += page
            return found
        finally:
            os.close(descriptor)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, in any order."""
        return os.listdir(path)  # noqa: PTH208 - names, and thousands of them

    def link(self, path: str) -> str:
        """Return the target of a link."""
        return os.readlink(path)  # noqa: PTH115 - thousands of these

    def resolve(self, path: str) -> str:
        """Return ``path`` with all links resolved; raise OSError if a part of it is absent."""
        try:
            return str(Path(path).resolve(strict=True))
        except RuntimeError as error:  # a loop of links, until Python 3.12
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from error


class Sysfs:
    """Reads what is below one root. Thread-safe; nothing is cached.

    Relative paths are below the root. Methods raise ``AbsentError``, ``UnreadableError`` or
    ``OddError``; those that do not mention errors never raise.
    """

    def __init__(self, root: str | os.PathLike[str] = "/sys", kernel: Kernel | None = None) -> None:
        self.root = Path(root)
        self.kernel = kernel or Kernel()

    def path(self, path: str | os.PathLike[str]) -> str:
        """Return ``path`` as an absolute one, if the root is absolute."""
        return os.path.join(self.root, path)  # noqa: PTH118 - thousands of these

    def read(
        self, path: str | os.PathLike[str], default: str | None = None, *, most: int = _PAGE
    ) -> str:
        """Return an attribute without blanks at its ends, or ``default`` if it is absent.

        Bytes that are not ASCII are escaped. ``most`` bytes are read, rounded up to pages: only
        binary attributes have more than one.

        Raises:
            SysfsError: It is absent and has no default, or cannot be read.
        """
        place = self.path(path)
        try:
            text = self.kernel.read(place, most)
        except OSError as error:
            if error.errno in _ABSENT and default is not None:
                return default
            raise _error(place, error) from error
        return text.decode("ascii", "backslashreplace").strip()

    def number(
        self, path: str | os.PathLike[str], base: int = 10, default: int | None = None
    ) -> int:
        """Return an attribute that is a whole number of at most 64 bits, or ``default``.

        ``base`` is 10, or 16 for digits with or without the prefix 0x.

        Raises:
            SysfsError: It is absent and has no default, cannot be read, or is not such a number.
        """
        try:
            text = self.read(path)
        except AbsentError:
            if default is None:
                raise
            return default
        if not _NUMBERS[base].fullmatch(text):
            raise OddError(self.path(path), f"{shown(text)} is not {_KINDS[base]}")
        return int(text, base)

    def names(self, path: str | os.PathLike[str]) -> list[str]:
        """Return the names in a directory, in natural order.

        Raises:
            SysfsError: It cannot be listed.
        """
        place = self.path(path)
        try:
            return sorted(self.kernel.names(place), key=natural)
        except OSError as error:
            raise _error(place, error) from error

    def entries(self, path: str | os.PathLike[str], pattern: re.Pattern[str]) -> list[Path]:
        """Return the paths in a directory whose names match ``pattern`` fully, in natural order.

        Raises:
            SysfsError: It cannot be listed.
        """
        return [Path(self.path(path), name) for name in self.names(path) if pattern.fullmatch(name)]

    def matches(
        self, path: str | os.PathLike[str], patterns: Sequence[re.Pattern[str]]
    ) -> Iterator[Path]:
        """Yield the paths below a directory that match ``patterns``, one pattern for each level.

        A directory that cannot be listed counts as empty.
        """
        if not patterns:
            yield Path(self.path(path))
            return
        try:
            found = self.entries(path, patterns[0])
        except SysfsError:
            return
        for entry in found:
            yield from self.matches(entry, patterns[1:])

    def link(self, path: str | os.PathLike[str]) -> str:
        """Return the last part of the target of a link, such as the name of a driver.

        Raises:
            SysfsError: It is absent or not a link.
        """
        place = self.path(path)
        try:
            return os.path.basename(self.kernel.link(place))  # noqa: PTH119 - thousands of these
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise OddError(place, "not a link") from error
            raise _error(place, error) from error

    def follow(self, path: str | os.PathLike[str]) -> Path:
        """Return ``path`` with all links resolved: an absolute path below the root.

        Raises:
            SysfsError: It is absent, a broken link, a loop of links, or leads out of the root.
        """
        place = self.path(path)
        try:
            target, top = Path(self.kernel.resolve(place)), Path(self.kernel.resolve(self.path("")))
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OddError(place, "a loop of links") from error
            if error.errno in _ABSENT and os.path.islink(place):  # noqa: PTH114 - never raises
                raise OddError(place, "a broken link") from error
            raise _error(place, error) from error
        if top not in target.parents:
            raise OddError(place, f"leads out of {self.root}")
        return target

    def text(self, path: str | os.PathLike[str]) -> str:
        """Return an attribute as ``read`` does, or an empty string if it cannot be read."""
        try:
            return self.read(path)
        except SysfsError:
            return ""


def natural(name: str) -> tuple[str, str]:
    """Return a sort key that puts ``card2`` before ``card10``. Different names never tie."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(_WIDEST), name), name


def shown(text: str) -> str:
    """Return the value of an attribute for an error message: quoted, and cut if it is long."""
    return repr(text[:40]) if text else "an empty value"


def _error(place: str, error: OSError) -> SysfsError:
    if error.errno in _ABSENT:
        return AbsentError(place, error.strerror or str(error))
    return UnreadableError(place, error)
