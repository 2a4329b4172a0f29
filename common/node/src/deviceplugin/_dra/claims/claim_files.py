"""The files of prepared claims: a record for each, which outlives a reboot, and the CDI file."""

import json
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deviceplugin._dra.claims.metadata import content, path_inside
from deviceplugin._dra.claims.record import Metadata, Record, is_uid
from deviceplugin.kit import cdi, files
from deviceplugin.model import Mount

log = logging.getLogger(__name__)

_CLASS: Final = "claim"
_ENDING: Final = ".json"
_SET_ASIDE: Final = ".bad"
_READABLE: Final = 0o755


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
    """The files of ``driver``, for each claim one in ``directory`` and those that it mounts.

    A container cannot start, nor start again, without the files of its claim. The directory is
    empty after a reboot, and anybody may clean it up. Those that are mounted are in ``mounted``; it
    has nothing else. Thread-safe.
    """

    def __init__(self, directory: Path, driver: str, mounted: Path) -> None:
        self.directory = directory
        self._mounted = mounted
        self._vendor = kind_of(driver).partition("/")[0]
        self._driver = driver
        self._lock = threading.Lock()
        self._wanted: dict[Path, str] = {}
        """The content of each file, in the order in which they are written."""

    def mounts(self, uid: str, metadata: Mapping[str, Metadata]) -> Mapping[str, Mount]:
        """Return what the containers of the claim ``uid`` have to mount for each request."""
        return {
            request: Mount(
                str(self._metadata_file(uid, request)),
                path_inside(self._driver, request, one),
                read_only=True,
            )
            for request, one in metadata.items()
        }

    def restore(self, records: Iterable[Record]) -> None:
        """Write the files of ``records``, and remove all others of ours."""
        self.want(records)
        with self._lock:
            self._write(self._wanted)
            own = cdi.Directory(self.directory, self._vendor).own()
            prefixes = _prefix(self._driver), "." + _prefix(self._driver)
            ours = [path for path in own if path.name.startswith(prefixes)]
            for path in (*ours, *_in(self._mounted)):
                if path not in self._wanted:
                    files.remove(path)

    def want(self, records: Iterable[Record]) -> None:
        """Keep the files of ``records`` from now on, and leave all others to other processes."""
        wanted = {path: text for one in records for path, text in self._files(one).items()}
        with self._lock:
            self._wanted = wanted

    def put(self, record: Record) -> None:
        """Write the files of a claim that are not there, and no others; OSError if that fails."""
        wanted = self._files(record)
        with self._lock:
            self._write(wanted)
            self._wanted |= wanted
            self._remove(self._all_of(record.claim.uid) - wanted.keys())

    def drop(self, uid: str) -> None:
        """Remove the files of the claim ``uid``, if there are any; OSError if one stays."""
        with self._lock:
            self._remove(self._all_of(uid))

    def repair(self) -> list[Path]:
        """Write lost and changed files again, and return them; OSError if one is left."""
        with self._lock:
            return self._write(self._wanted)

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            with suppress(NotADirectoryError):
                files.remove(path)
            self._wanted.pop(path, None)

    def _all_of(self, uid: str) -> set[Path]:
        known = (*_in(self._mounted), *self._wanted)
        mounted = {one for one in known if one.name.rpartition("_")[0] == uid}
        return mounted | {self._file(uid)}

    def _write(self, wanted: Mapping[Path, str]) -> list[Path]:
        written, failures = [], []
        for path, text in wanted.items():
            try:
                if path.parent == self._mounted:
                    _make(self._mounted)
                # It need not survive a loss of power: the record does, and it is written again.
                is_new = files.write(path, text, durable=False)
                written += [path] if is_new else []
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return written

    def _files(self, record: Record) -> Mapping[Path, str]:
        if record.document is None:
            return {}
        uid, metadata = record.claim.uid, record.metadata
        mounted = {self._metadata_file(uid, name): content(one) for name, one in metadata.items()}
        return {**mounted, self._file(uid): json.dumps(record.document, indent=2) + "\n"}

    def _file(self, uid: str) -> Path:
        return self.directory / file_of(self._driver, uid)

    def _metadata_file(self, uid: str, request: str) -> Path:
        return self._mounted / f"{uid}_{request}{_ENDING}"


def _make(directory: Path) -> None:
    """Make ``directory`` readable for all; a link in its place is replaced, not followed."""
    if directory.is_symlink():
        directory.unlink()
    directory.mkdir(parents=True, exist_ok=True)
    if directory.stat().st_mode & _READABLE != _READABLE:
        directory.chmod(_READABLE)


def _in(directory: Path) -> list[Path]:
    """Return what is in ``directory`` and is not a directory, without following links."""
    if directory.is_symlink() or not directory.is_dir():
        return []
    with os.scandir(directory) as found:
        return [Path(one.path) for one in found if not one.is_dir(follow_symlinks=False)]


class Records:
    """The records in ``directory``. Thread-safe, but only one thread at a time may change one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._records: Mapping[str, Record] = {}
        self._seen: object = None
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
    try:
        path.replace(kept)
    except OSError as failure:
        _report(path, error, failure)
    else:
        _report(path, error, kept)


def _report(path: Path, error: Exception, kept: object) -> None:
    fields = {"file": str(path), "error": str(error), "kept": str(kept)}
    log.error("record of a claim cannot be read", extra=fields)
