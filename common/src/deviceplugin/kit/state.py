"""What a plugin has to know again after a restart: a small JSON document in a file."""

import errno
import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from deviceplugin._config.contents import content
from deviceplugin.kit import files
from deviceplugin.kit.log import Problems

__all__ = ["ASIDE", "LONGEST", "State"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

ASIDE: Final = ".unreadable"
"""What the name of a file has at its end that could not be used, and was set aside."""
LONGEST: Final = 4 * 1024**2
"""Bytes of a file that is read, and written."""
_VERSION: Final = "version"


class State:
    """A document of one version in a file of mode 0600. For one thread at a time.

    Nothing in the file can keep a plugin from starting: what is damaged, of another version or
    unreadable counts as empty, is logged, and is set aside under the name with ``ASIDE`` at its
    end, so that nothing is lost in silence.

    Args:
        path: The file; with None nothing is kept.
        version: Of the document's form. Raise it when an older plugin, or a newer one, would not
            understand the document.
    """

    def __init__(self, path: Path | None, version: int) -> None:
        self._path = path
        self._version = version
        self._problems = Problems(log)

    def load(self, read: Callable[[Mapping[str, Any]], _T], empty: _T) -> _T:
        """Return what ``read`` makes of the document, or ``empty`` where there is none to be used.

        ``read`` gets the document as it was given to ``save``, with its version, or whatever
        somebody else has put there: it need not check the form. If it fails as one does on another
        form, by ``ValueError``, ``TypeError``, ``LookupError``, ``AttributeError`` or
        ``ArithmeticError``, the file counts as damaged. Waits for nobody, as on a pipe.
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
        """Keep ``document`` for the next ``load``, and return whether it is kept.

        Written whole or not at all, and only if it differs. What cannot be written, or has more
        than ``LONGEST`` bytes, is logged once until it can. Of several writers, the last wins.

        Raises:
            TypeError: Something in it is not of JSON.
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

    def _document(self, path: Path) -> Mapping[str, Any]:
        read: object = json.loads(content(path, LONGEST))
        if not isinstance(read, dict):
            raise TypeError("not a JSON object")
        document = cast("dict[str, Any]", read)
        found = document.get(_VERSION)
        if found != self._version:
            raise ValueError(f"version {found!r}, and this plugin reads {self._version}")
        return document


def _write(path: Path, text: str) -> None:
    if len(text) > LONGEST:  # of which the next load would make nothing
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    files.write(path, text, mode=0o600)


def _set_aside(path: Path) -> str | None:
    """Rename a regular file; return its new name, or None if it is not one, or must stay."""
    aside = path.with_name(path.name + ASIDE)
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            return str(path.replace(aside))
    return None
