"""The checksum beside a bitstream, as ``sha256sum`` writes it. If it exists, it must match."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from deviceplugin_fpga.hook import files
from deviceplugin_fpga.hook.errors import HookError, shown

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".sha256"
"""The suffix of a checksum file."""
_LARGEST = 4096
"""The most bytes of a checksum file: one digest and one path."""
_LINE = re.compile(r"([0-9A-Fa-f]{64})(?: [ *](.*\S))?")
"""A digest, alone or followed by the mode in which the file was read, and its name."""
_STREAM = "-"
"""The name that ``sha256sum`` gives to its standard input."""


def check(path: Path, content: bytes) -> bool:
    """Compare ``content``, which was read from ``path``, with the checksum beside it, if any.

    Return whether there is one.

    Raises:
        HookError: The checksum differs, or is malformed or unreadable.
    """
    checksum = path.with_name(f"{path.name}{SUFFIX}")
    how = f"write it with: sha256sum {path.name} > {checksum.name}"
    text = files.load(checksum, _LARGEST)
    if text is None:
        if os.path.lexists(checksum):
            raise HookError(f"{shown(checksum)}: a broken link; {how}")
        return False
    found = _LINE.fullmatch(text.decode("ascii", "replace").strip())
    if not found:
        raise HookError(f"{shown(checksum)}: not a SHA-256 checksum as sha256sum writes it; {how}")
    digest, name = found.groups()
    if name not in (None, _STREAM) and PurePosixPath(name).name != path.name:
        raise HookError(f"{shown(checksum)}: of '{shown(name, 80)}', not of {path.name}; {how}")
    now = hashlib.sha256(content).hexdigest()
    if now != digest.lower():
        raise HookError(
            f"{shown(path)}: damaged, truncated or another file: its SHA-256 is {now}, and "
            f"{checksum.name} says {digest.lower()}; copy it here again, or {how}"
        )
    return True
