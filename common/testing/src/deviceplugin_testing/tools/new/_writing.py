"""Writing several files, or none of them."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from deviceplugin.errors import ConfigError

Edit = Callable[[str], str]
"""Returns the new content of a file, or raises ``ConfigError``."""


def write(root: Path, new: Mapping[Path, str], edits: Mapping[Path, Edit], *, dry: bool) -> None:
    """Write the ``new`` files below ``root``, then edit others; with ``dry``, only check.

    An existing file is never overwritten. If two processes write the same at once, the one that
    creates the first new file wins, and the other fails.

    Raises:
        ConfigError: A file exists, or an edit is impossible. Nothing has changed.
        OSError: A file cannot be written. Nothing has changed.
    """
    try:
        for path in new:
            _check_free(root / path)
        for path, edit in edits.items():
            edit((root / path).read_text(encoding="utf-8"))
        if not dry:
            _write(root, new, edits)
    except FileExistsError as error:
        raise ConfigError(f"{error.filename}: exists already; nothing was created") from error


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(f"{path}: exists already; nothing was created")
    over = next(folder for folder in path.parents if os.path.lexists(folder))
    if not over.is_dir():
        raise ConfigError(f"{over}: is not a directory; nothing was created")
    if not os.access(over, os.W_OK | os.X_OK):
        raise ConfigError(f"{over}: is not writable; nothing was created")


def _write(root: Path, new: Mapping[Path, str], edits: Mapping[Path, Edit]) -> None:
    with ExitStack() as undo:
        for path, text in new.items():
            _make(root / path, text, undo)
        for path, edit in edits.items():
            _edit(root / path, edit, undo)
        undo.pop_all()


def _make(path: Path, text: str, undo: ExitStack) -> None:
    for folder in [one for one in reversed(path.parents) if not one.exists()]:
        folder.mkdir()
        undo.callback(_remove_folder, folder)
    with path.open("x", encoding="utf-8") as file:
        undo.callback(path.unlink, missing_ok=True)
        file.write(text)


def _remove_folder(folder: Path) -> None:
    with suppress(OSError):  # another process has put something into it
        folder.rmdir()


def _edit(path: Path, edit: Edit, undo: ExitStack) -> None:
    partial = path.with_name(f"{path.name}.new")
    with partial.open("x", encoding="utf-8") as file, ExitStack() as half:
        half.callback(partial.unlink)
        old = path.read_text(encoding="utf-8")  # read it now, while nobody else edits it
        file.write(edit(old))
        file.flush()
        partial.chmod(path.stat().st_mode)
        partial.replace(path)
        half.pop_all()
    undo.callback(path.write_text, old, encoding="utf-8")
