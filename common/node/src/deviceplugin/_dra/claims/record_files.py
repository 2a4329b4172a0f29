"""The records of prepared claims: a file for each, which outlives the process and a reboot."""

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
    """The records in ``directory``, which is created with the first.

    Thread-safe, but for one claim only one thread at a time may write or remove.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._records: Mapping[str, Record] = {}

    def load(self) -> Mapping[str, Record]:
        """Read all records, in place of those known before; return them by uid.

        A file that is not a record is renamed, so that the others can be used. One that was renamed
        and is a record is used again: an older release could not read it. A directory that does not
        exist has none.

        Raises:
            OSError: The directory cannot be read.
        """
        for path in self.set_aside():
            _take_back(path)
        found: dict[str, Record] = {}
        for path in _files(self.directory, _ENDING):
            try:
                found[path.stem] = _read(path, path.stem)
            except (OSError, ValueError, RecursionError) as error:
                _set_aside(path, error)
        with self._lock:
            self._records = found
        return found

    def set_aside(self) -> list[Path]:
        """Return the files that were not records.

        Raises:
            OSError: The directory cannot be read.
        """
        return _files(self.directory, _ENDING + _SET_ASIDE)

    def all(self) -> Mapping[str, Record]:
        return self._records

    def get(self, uid: str) -> Record | None:
        return self._records.get(uid)

    def write(self, record: Record) -> None:
        """Write ``record`` to the disk.

        That of a prepared claim survives a loss of power when this returns. The others need only
        survive this process: after a loss of power nobody uses what they withhold.

        Raises:
            OSError: It cannot be written, and the one before it stays.
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
        """Remove the record of the claim ``uid`` from the disk.

        Raises:
            OSError: It cannot be removed, and stays.
        """
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
