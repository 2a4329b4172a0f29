"""Files that others read: whole, or as they were before."""

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


def write(path: Path, text: str, mode: int = 0o644) -> bool:
    """Have ``path`` contain ``text``, with its directory made; return whether it did not before.

    Nobody ever sees a part of it. Until it is whole, it has a hidden name that no suffix ends.

    Raises:
        OSError: It cannot be written; what was there is still there.
    """
    if _is(path, text, mode):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
    return True


def _is(path: Path, text: str, mode: int) -> bool:
    try:
        return path.read_bytes() == text.encode() and path.stat().st_mode & 0o777 == mode
    except OSError:
        return False
