"""The files of prepared claims: a record for each, which outlives a reboot, and the CDI file."""

import json
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deviceplugin._dra.claims.record import Record, is_uid
from deviceplugin.kit import cdi, files

log = logging.getLogger(__name__)

_CLASS: Final = "claim"
_ENDING: Final = ".json"
_SET_ASIDE: Final = ".bad"


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
        """Write ``documents``, by the uid of their claims, and remove all other files of ours."""
        self.want(documents)
        with self._lock:
            self._write(self._wanted)
            for path in cdi.Directory(self.directory, self._vendor).own():
                is_claims = path.name.removeprefix(".").startswith(_prefix(self._driver))
                if is_claims and path.name not in self._wanted:
                    files.remove(path)

    def want(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the files of ``documents`` from now on, and leave all others to other processes."""
        with self._lock:
            self._wanted = {self._name(uid): _text(one) for uid, one in documents.items()}

    def put(self, uid: str, document: Mapping[str, Any]) -> None:
        """Write ``document`` of the claim ``uid``, unless it is there; OSError if it cannot be."""
        name, content = self._name(uid), _text(document)
        with self._lock:
            self._write({name: content})
            self._wanted[name] = content

    def drop(self, uid: str) -> None:
        """Remove the file of the claim ``uid``, if there is one; OSError if it stays."""
        name = self._name(uid)
        with self._lock:
            with suppress(NotADirectoryError):
                files.remove(self.directory / name)
            self._wanted.pop(name, None)

    def repair(self) -> list[str]:
        """Write lost and changed files again, and return their names; OSError if one is left."""
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


class Records:
    """The records in ``directory``. Thread-safe, but only one thread at a time may change one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._records: Mapping[str, Record] = {}
        self._seen: object = None

    def load(self) -> Mapping[str, Record]:
        """Read all records, in place of those known before; return them by uid.

        A file that is not a record is renamed, so that the others can be used. One that was renamed
        and is a record is used again: an older release could not read it. A directory that does not
        exist has none; OSError if it cannot be read.
        """
        self.seen()
        for path in self.set_aside():
            _take_back(path)
        found: dict[str, Record] = {}
        for path in _files(self.directory, _ENDING):
            try:
                found[path.stem] = _read(path, path.stem)
            except FileNotFoundError:  # another process has released the claim
                continue
            except (OSError, ValueError, RecursionError) as error:
                _set_aside(path, error)
        with self._lock:
            self._records = found
        return found

    def seen(self) -> None:
        """Treat the files as they are now as known."""
        self._seen = self._state()

    def has_news(self) -> bool:
        """Return whether another process has changed a file since ``load`` or ``seen``."""
        return self._seen != self._state()

    def _state(self) -> object:
        # A file is never written in place, so each version has an inode and a time of its own.
        try:
            with os.scandir(self.directory) as found:
                files = [(one.name, one.stat(follow_symlinks=False)) for one in found]
        except FileNotFoundError:  # the directory, or a file of another process in between
            return None
        except OSError:
            return object()  # which is always news
        return {(name, one.st_ino, one.st_mtime_ns, one.st_size) for name, one in files}

    def set_aside(self) -> list[Path]:
        """Return the files that were not records; OSError if the directory cannot be read."""
        return _files(self.directory, _ENDING + _SET_ASIDE)

    def all(self) -> Mapping[str, Record]:
        return self._records

    def get(self, uid: str) -> Record | None:
        return self._records.get(uid)

    def write(self, record: Record) -> None:
        """Write ``record`` to the disk; OSError if that is impossible, and the one before it stays.

        That of a prepared claim survives a loss of power when this returns. The others need only
        survive this process: after a loss of power nobody uses what they withhold.
        """
        content = json.dumps(record.written(), indent=2) + "\n"
        durable = record.state == "prepared"
        files.write(self._path(record.claim.uid), content, mode=0o600, durable=durable)
        if durable:  # what was set aside is replaced
            path = self._path(record.claim.uid)
            files.remove(path.with_name(path.name + _SET_ASIDE))
        with self._lock:
            self._records = {**self._records, record.claim.uid: record}

    def remove(self, uid: str) -> None:
        """Remove the record of the claim ``uid`` from the disk; OSError if it stays."""
        path = self._path(uid)
        files.remove(path, durable=True)
        files.remove(path.with_name(path.name + _SET_ASIDE))
        with self._lock:
            self._records = {key: one for key, one in self._records.items() if key != uid}

    def _path(self, uid: str) -> Path:
        return self.directory / f"{uid}{_ENDING}"


def _files(directory: Path, ending: str) -> list[Path]:
    try:
        found = list(directory.iterdir())
    except FileNotFoundError:
        return []
    return sorted(p for p in found if p.name.endswith(ending) and not p.name.startswith("."))


def _read(path: Path, uid: str) -> Record:
    record = Record.read(json.loads(path.read_bytes()))
    if record.claim.uid != uid or not is_uid(uid):
        raise ValueError(f"it is of claim {record.claim.uid!r}")
    return record


def _take_back(path: Path) -> None:
    """Give a file that was set aside its name again, if it is a record and that name is free."""
    place = path.with_suffix("")
    if place.exists():
        return
    with suppress(OSError, ValueError, RecursionError):
        _read(path, place.stem)
        path.replace(place)


def _set_aside(path: Path, error: Exception) -> None:
    kept = path.with_name(path.name + _SET_ASIDE)
    fields = {"file": str(path), "error": str(error), "kept": str(kept)}
    try:
        path.replace(kept)
    except OSError as failure:
        fields["kept"] = str(failure)
    log.error("record of a claim cannot be read", extra=fields)
