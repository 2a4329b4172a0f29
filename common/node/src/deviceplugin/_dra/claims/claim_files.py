"""The files that containers of prepared claims need: the CDI file, and what it mounts."""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deviceplugin._dra.claims.metadata import content, path_inside
from deviceplugin._dra.claims.record import Metadata, Record
from deviceplugin.kit import cdi, files
from deviceplugin.model import Mount

_CLASS: Final = "claim"
_ENDING: Final = ".json"
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
        self._wanted: dict[str, Mapping[Path, str]] = {}
        """By uid: the content of each file, in the order in which they are written."""

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
            wanted = self._all()
            self._write(wanted)
            own = cdi.Directory(self.directory, self._vendor).own()
            prefixes = _prefix(self._driver), "." + _prefix(self._driver)
            ours = [path for path in own if path.name.startswith(prefixes)]
            for path in (*ours, *_in(self._mounted)):
                if path not in wanted:
                    files.remove(path)

    def want(self, records: Iterable[Record]) -> None:
        """Keep the files of ``records`` from now on, and leave all others to other processes."""
        wanted = {one.claim.uid: self._files(one) for one in records}
        with self._lock:
            self._wanted = wanted

    def put(self, record: Record) -> None:
        """Write the files of a claim that are not there, and no others; OSError if that fails."""
        uid, wanted = record.claim.uid, self._files(record)
        with self._lock:
            self._write(wanted)
            self._wanted[uid] = wanted
            self._remove(self._all_of(uid) - wanted.keys())

    def drop(self, uid: str) -> None:
        """Remove the files of the claim ``uid``, if there are any; OSError if one stays."""
        with self._lock:
            self._remove(self._all_of(uid))
            self._wanted.pop(uid, None)

    def repair(self) -> list[Path]:
        """Write lost and changed files again, and return them; OSError if one is left."""
        with self._lock:
            return self._write(self._all())

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            with suppress(NotADirectoryError):
                files.remove(path)

    def _all(self) -> Mapping[Path, str]:
        return {path: text for one in self._wanted.values() for path, text in one.items()}

    def _all_of(self, uid: str) -> set[Path]:
        # Another process, which was killed, may have left some.
        mounted = {one for one in _in(self._mounted, uid) if one.name.rpartition("_")[0] == uid}
        return {*mounted, *self._wanted.get(uid, ()), self._file(uid)}

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


def _in(directory: Path, begin: str = "") -> list[Path]:
    """Return what is in ``directory`` and is not a directory, without following links."""
    if directory.is_symlink() or not directory.is_dir():
        return []
    with os.scandir(directory) as found:
        named = (one for one in found if one.name.startswith(begin))
        return [Path(one.path) for one in named if not one.is_dir(follow_symlinks=False)]
