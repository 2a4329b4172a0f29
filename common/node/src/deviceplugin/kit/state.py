"""State that survives a restart of the plugin: a small JSON document in a file."""

import errno
import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from deviceplugin._config.documents.reading import content
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit import files
from deviceplugin.kit.log import Problems

__all__ = ["ASIDE", "LONGEST", "State"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

ASIDE: Final = ".unreadable"
"""The ending of the name of a file that was set aside because it could not be used."""
LONGEST: Final = 4 * 1024**2
"""Most bytes of a file, for reading and for writing."""
_VERSION: Final = "version"
_PAUSE: Final = 0.02
"""Seconds between two tries to lock a folder."""


class State:
    """A versioned document in a file of mode 0600. For one thread at a time.

    Nothing in the file can keep a plugin from starting. A file that is damaged, unreadable or of
    another version counts as empty. That is logged, and the file is renamed with ``ASIDE`` at its
    end, so that nothing is lost silently.

    Args:
        path: The file; with None nothing is saved.
        version: The version of the document's form. Raise it when older plugins could no longer
            read the document, or newer ones could not read the old form.
    """

    def __init__(self, path: Path | None, version: int) -> None:
        self._path = path
        self._version = version
        self._problems = Problems(log)

    def load(self, read: Callable[[Mapping[str, Any]], _T], empty: _T) -> _T:
        """Return what ``read`` returns for the document, or ``empty`` if there is no usable one.

        ``read`` gets what ``save`` was given, with the version. The file may also have been edited,
        but ``read`` need not check it: if it raises ``ValueError``, ``TypeError``, ``LookupError``,
        ``AttributeError`` or ``ArithmeticError``, the file counts as damaged. This never blocks, as
        reading a pipe can.
        """
        if self._path is None:
            return empty
        try:
            return read(self._document(self._path))
        except FileNotFoundError:
            return empty
        except (
            *(OSError, ValueError, TypeError, LookupError, AttributeError),
            *(ArithmeticError, RecursionError),
        ) as error:
            self._problems.say(
                "load",
                "saved state unreadable",
                file=str(self._path),
                error=str(error) or type(error).__name__,
                kept_as=_set_aside(self._path),
            )
            return empty

    def save(self, document: Mapping[str, Any]) -> bool:
        """Save ``document`` for the next ``load``; return whether it is saved.

        It is written whole or not at all, and only if it differs. If it cannot be written, or has
        more than ``LONGEST`` bytes, that is logged once, until it succeeds. Of several writers, the
        last one wins.

        Raises:
            TypeError: JSON cannot represent something in it.
        """
        if self._path is None:
            return False
        whole = {**document, _VERSION: self._version}
        text = json.dumps(whole, indent=1, sort_keys=True) + "\n"
        try:
            _write(self._path, text)
        except OSError as error:
            self._problems.say("save", "state not saved", file=str(self._path), error=str(error))
            return False
        self._problems.over("save")
        return True

    @contextmanager
    def alone(self, seconds: float = 5.0) -> Generator[None, None, None]:
        """Keep other processes from changing the file meanwhile, if they use this too.

        They are kept from all files of its folder. A file system without locks keeps nobody.

        Raises:
            DevicePluginError: Another process does not let it go within ``seconds``.
        """
        with ExitStack() as undo:
            if self._path:
                with suppress(OSError):  # then it cannot be saved either, or there are no locks
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    folder = os.open(self._path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
                    undo.callback(os.close, folder)
                    _lock(folder, self._path, seconds)
            yield

    def _document(self, path: Path) -> Mapping[str, Any]:
        read: object = json.loads(content(path, LONGEST))
        if not isinstance(read, dict):
            raise TypeError("not a JSON object")
        document = cast("dict[str, Any]", read)
        found = document.get(_VERSION)
        if found != self._version:
            raise ValueError(f"version {found!r}, and this plugin reads {self._version}")
        return document


def _lock(folder: int, path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise DevicePluginError(f"{path}: another process keeps it locked") from error
        time.sleep(_PAUSE)


def _write(path: Path, text: str) -> None:
    if len(text) > LONGEST:  # the next load would refuse it
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    files.write(path, text, mode=0o600)


def _set_aside(path: Path) -> str | None:
    """Rename a regular file and return its new name; None if it is not one or cannot be renamed."""
    aside = path.with_name(path.name + ASIDE)
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            return str(path.replace(aside))
    return None
