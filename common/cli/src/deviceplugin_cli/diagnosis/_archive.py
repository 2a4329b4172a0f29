"""An archive of bounded size. What is secret is masked, and what is left out is named in it."""

import os
import threading
import zipfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deviceplugin._config.documents.faults import printable
from deviceplugin_cli.diagnosis._masks import masked

MOST: Final = 24 * 1024**2
"""Bytes of the archive. Most trackers of issues take 25 MB."""
MOST_OF_ONE: Final = 4 * 1024**2
"""Bytes of a file in it."""
LEFT_OUT: Final = "left-out.txt"


class Archive:
    """A zip file at ``path``, which only its owner can read. Thread-safe.

    It has its name only once it is complete: until then, and if the process is killed, it has
    ``.part`` behind it. ``most`` is when nothing more is taken.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        self._path, self._most = path, most
        self._part = path.with_name(f"{path.name}.part")
        self._lock = threading.Lock()
        self.left_out: list[str] = []
        file = os.open(self._part, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(file, "w+b")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        self._when = datetime.now(UTC).timetuple()[:6]

    def add(self, name: str, text: str, *, is_needed: bool = False) -> None:
        """Add a file, masked. A long one loses its beginning; one too many is left out.

        One that ``is_needed`` is never too many.
        """
        if not text:
            return
        content = masked(text).encode(errors="replace")
        with self._lock:
            if self._file.tell() > self._most and not is_needed:
                self.left_out.append(f"{name}: the archive has {self._most >> 20} MiB already")
                return
            if len(content) > MOST_OF_ONE:
                self.left_out.append(f"{name}: all but the last {MOST_OF_ONE >> 10} KiB")
                content = content[-MOST_OF_ONE:]
            self._write(name, content)

    def _write(self, name: str, content: bytes) -> None:
        entry = zipfile.ZipInfo(name, self._when)
        entry.external_attr = 0o600 << 16
        self._zip.writestr(entry, content, zipfile.ZIP_DEFLATED)

    def skip(self, name: str, why: str) -> None:
        """Note that something could not be read."""
        with self._lock:
            self.left_out.append(f"{name}: {why}")

    def close(self) -> None:
        """Complete it."""
        lines = (printable(masked(line)) for line in sorted(self.left_out))
        self._write(LEFT_OUT, "".join(f"{line}\n" for line in lines).encode())
        self._zip.close()
        self._file.close()
        self._part.replace(self._path)

    def remove(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError, ValueError):  # a full disk, or complete and closed
            self._zip.close()
        self._file.close()
        self._part.unlink(missing_ok=True)
