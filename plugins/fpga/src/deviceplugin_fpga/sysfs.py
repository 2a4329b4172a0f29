"""Reading sysfs. Standard library only, Python 3.9: the hook runs this on the host."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LONGEST = 4096
"""Bytes of an attribute that are looked at: the kernel gives no more."""
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_DIGITS = re.compile(r"\d+", re.ASCII)


class SysfsError(Exception):
    """Something in sysfs is not as it should be; the text names it."""


def read(folder: Path, name: str) -> str:
    """Return an attribute without blanks at its ends; an empty text if there is none.

    Raises:
        SysfsError: It is there and cannot be read.
    """
    try:
        # Never waits, whatever is there.
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, _LONGEST)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _ABSENT:
            return ""
        raise SysfsError(f"{folder.name}: {name}: {error.strerror}") from error
    return text.decode("ascii", "backslashreplace").strip()


def entries(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return what is in ``folder`` under names that match, in natural order.

    Raises:
        SysfsError: It cannot be listed.
    """
    try:
        names = [name for name in os.listdir(folder) if pattern.fullmatch(name)]  # noqa: PTH208
    except OSError as error:
        raise SysfsError(f"{folder.name}: {error.strerror}") from error
    return [folder / name for name in sorted(names, key=natural)]


def matches(folder: Path, *patterns: re.Pattern[str]) -> Iterator[Path]:
    """Yield the paths below ``folder`` whose parts match ``patterns``, one after the other."""
    if not patterns:
        yield folder
        return
    try:
        found = entries(folder, patterns[0])
    except SysfsError:
        return
    for entry in found:
        yield from matches(entry, *patterns[1:])


def follow(path: Path, root: Path) -> Path:
    """Return where the link at ``path`` leads, which is below ``root``.

    Raises:
        SysfsError: It leads nowhere, in a circle or out of ``root``.
    """
    try:
        target, top = path.resolve(strict=True), root.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a circle, until Python 3.12
        raise SysfsError(f"{path.parent.name}/{path.name}: a broken link") from error
    if top not in target.parents:
        raise SysfsError(f"{path.parent.name}/{path.name}: leads out of {root}")
    return target


def natural(name: str) -> tuple[str, str]:
    """Return a sort key that puts ``region2`` before ``region10``."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(20), name), name
