"""Files that others read while they are written."""

import stat
from contextlib import suppress
from pathlib import Path


def has(path: Path, content: bytes, mode: int) -> bool:
    """Tell whether ``content`` is at ``path``, in a regular file of ``mode``. Waits for nobody."""
    try:
        status = path.lstat()
        return status.st_mode == stat.S_IFREG | mode and path.read_bytes() == content
    except OSError:
        return False


def write(path: Path, content: bytes, mode: int) -> None:
    """Have ``content`` at ``path``, in place of what is there. Nobody ever sees half of it.

    Raises:
        OSError: It cannot be written; what was there stays. Its ``filename`` is set.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name that no container runtime reads: it does not end as a specification does.
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(content)
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        # A full disk, for one, names no file.
        raise OSError(error.errno, error.strerror, str(path)) from error
