"""The CDI specification file of each prepared claim, from which the runtime adds its devices."""

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit import cdi, files

_CLASS: Final = "claim"


def kind_of(driver: str) -> str:
    """Return the vendor and class of the CDI devices of ``driver``."""
    # A driver's name may begin with a digit, and a vendor's may not.
    return f"k8s.{driver}/{_CLASS}"


def file_of(driver: str, uid: str) -> str:
    """Return the name of the CDI file of the claim ``uid``."""
    return f"{_prefix(driver)}{uid}.json"


def _prefix(driver: str) -> str:
    return f"{kind_of(driver).replace('/', '-')}_"


class ClaimFiles:
    """The files of ``driver`` in ``directory``, one for each claim. Thread-safe.

    A container cannot start, nor start again, without the file of its claim. The directory is empty
    after a reboot, and anybody may clean it up.
    """

    def __init__(self, directory: Path, driver: str) -> None:
        self.directory = directory
        self._vendor = kind_of(driver).partition("/")[0]
        self._driver = driver
        self._lock = threading.Lock()
        self._wanted: dict[str, str] = {}
        """The content of each file by its name."""

    def restore(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the ``documents``, by the uid of their claims, and remove all other files of ours.

        Raises:
            OSError: A file cannot be written or removed. The others are written.
        """
        with self._lock:
            self._wanted = {self._name(uid): _text(one) for uid, one in documents.items()}
            self._write(self._wanted)
            for path in cdi.Directory(self.directory, self._vendor).own():
                is_claims = path.name.removeprefix(".").startswith(_prefix(self._driver))
                if is_claims and path.name not in self._wanted:
                    files.remove(path)

    def put(self, uid: str, document: Mapping[str, Any]) -> None:
        """Write ``document``, which is of the claim ``uid``, unless it is there.

        Raises:
            OSError: It cannot be written.
        """
        name, content = self._name(uid), _text(document)
        with self._lock:
            self._write({name: content})
            self._wanted[name] = content

    def drop(self, uid: str) -> None:
        """Remove the file of the claim ``uid``, if there is one.

        Raises:
            OSError: It cannot be removed, and stays.
        """
        name = self._name(uid)
        with self._lock:
            with suppress(NotADirectoryError):
                files.remove(self.directory / name)
            self._wanted.pop(name, None)

    def repair(self) -> list[str]:
        """Write the files again that are lost or changed; return their names.

        Raises:
            OSError: One cannot be written. The others are written.
        """
        with self._lock:
            return self._write(self._wanted)

    def _write(self, wanted: Mapping[str, str]) -> list[str]:
        written, failures = [], []
        for name, content in wanted.items():
            try:
                # It need not survive a loss of power: the record does, and it is written again.
                is_new = files.write(self.directory / name, content, durable=False)
                written += [name] if is_new else []
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return written

    def _name(self, uid: str) -> str:
        return file_of(self._driver, uid)


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
