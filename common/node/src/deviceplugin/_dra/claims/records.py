"""The records of prepared claims on the disk, one for each. They outlive a reboot."""

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deviceplugin._dra.claims.record import Record, is_uid
from deviceplugin.kit import files

log = logging.getLogger(__name__)

_ENDING: Final = ".json"
_SET_ASIDE: Final = ".bad"


class Records:
    """The records in ``directory``. Thread-safe, but only one thread at a time may change one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._records: Mapping[str, Record] = {}
        self._seen: object = None
        self._sync_lock, self._unsynced = threading.Lock(), False
        self._odd: list[Path] = []
        """Files that could not be read and have their name."""

    def load(self, *, moves: bool = True) -> Mapping[str, Record]:
        """Read all records, in place of those known before; return them by uid.

        A file that is not a record ``moves``: it is renamed. One that was renamed and is a record
        is used again: an older release could not read it. A newer one that lives beside this would
        do so at once, so what came since the start should stay. A directory that does not exist has
        none; OSError if it cannot be read.
        """
        self.seen()
        self._unsynced = True  # whoever wrote them may have been killed before that
        for path in _files(self.directory, _ENDING + _SET_ASIDE):
            _take_back(path)
        found: dict[str, Record] = {}
        before, self._odd = self._odd, []
        for path in _files(self.directory, _ENDING):
            try:
                found[path.stem] = _read(path, path.stem)
            except FileNotFoundError:  # another process has released the claim
                continue
            except (OSError, ValueError, RecursionError) as error:
                if moves:
                    _set_aside(path, error)
                    continue
                self._odd.append(path)
                if path not in before:
                    _report(path, error, path)
        with self._lock:
            self._records = found
        return found

    def seen(self) -> None:
        """Treat the files as they are now as known."""
        self._seen = self._state()

    def has_news(self) -> bool:
        """Return whether somebody has changed a file since ``load`` or ``seen``.

        Two changes within some milliseconds can look like one.
        """
        return self._seen != self._state()

    def _state(self) -> object:
        # No file is ever written in place.
        try:
            return self.directory.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        except OSError:
            return object()  # which is always news

    def set_aside(self) -> list[Path]:
        """Return the files that were not records; OSError if the directory cannot be read."""
        odd = [path for path in self._odd if path.exists()]
        return [*odd, *_files(self.directory, _ENDING + _SET_ASIDE)]

    def all(self) -> Mapping[str, Record]:
        return self._records

    def get(self, uid: str) -> Record | None:
        return self._records.get(uid)

    def write(self, record: Record) -> None:
        """Write ``record`` to the disk; OSError if that is impossible, and the one before it stays.

        That of a prepared claim survives a loss of power once ``sync`` returns. The others need
        only survive this process: after a loss of power nobody uses what they withhold.
        """
        path, durable = self._path(record.claim.uid), record.state == "prepared"
        content = json.dumps(record.written()) + "\n"
        files.write(path, content, mode=0o600, durable=durable, named=False)
        if durable:  # what was set aside is replaced
            self._unsynced = True
            _aside(path).unlink(missing_ok=True)
        with self._lock:
            self._records = {**self._records, record.claim.uid: record}

    def remove(self, uid: str) -> None:
        """Remove the record of the claim ``uid``; OSError if it stays.

        It does not come back after a loss of power once ``sync`` returns, or if another one that
        was written later is there.
        """
        path = self._path(uid)
        if files.remove(path):
            self._unsynced = True
        with self._lock:
            self._records = {key: one for key, one in self._records.items() if key != uid}

    def remove_set_aside(self, uid: str) -> bool:
        """Remove what was set aside for the claim ``uid``, as `remove`; return if it was there."""
        found = files.remove(_aside(self._path(uid)))
        self._unsynced = self._unsynced or found
        return found

    def sync(self) -> None:
        """Have what was written and removed on the disk, whichever thread did so; or OSError."""
        with self._sync_lock:
            unsynced, self._unsynced = self._unsynced, False
            try:
                if unsynced:
                    files.sync(self.directory)
            except OSError:
                self._unsynced = True
                raise

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


def _aside(path: Path) -> Path:
    return path.with_name(path.name + _SET_ASIDE)


def _set_aside(path: Path, error: Exception) -> None:
    kept = _aside(path)
    try:
        path.replace(kept)
    except OSError as failure:
        _report(path, error, failure)
    else:
        _report(path, error, kept)


def _report(path: Path, error: Exception, kept: object) -> None:
    fields = {"file": str(path), "error": str(error), "kept": str(kept)}
    log.error("record of a claim cannot be read", extra=fields)
