"""A directory with CDI specifications, some of which are ours."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Final

from deviceplugin._config.documents.reading import content
from deviceplugin.kit import files
from deviceplugin.kit.cdi._reading import LONGEST
from deviceplugin.kit.cdi._specification import Specification

_KIND: Final = re.compile(r"\bkind[\"']?\s*:\s*[\"']?([A-Za-z0-9_.-]+)/")


class Directory:
    """A directory of specifications. Only the files of ``vendor`` in it are ours.

    Thread-safe. Only one process at a time may use a vendor.
    """

    def __init__(self, path: Path, vendor: str) -> None:
        self.path = path
        self._vendor = vendor
        self._writing = Lock()

    def write(self, specification: Specification, file: str = "") -> bool:
        """Write ``specification`` to a file; return whether the file changed.

        The directory is created if needed. A reader sees the new file or the old one, and never a
        part. An unchanged file is not written. The default of ``file`` is the conventional name.

        Raises:
            ValueError: A runtime would refuse it, or it is of another vendor.
            OSError: It cannot be written, and the old file stays. ``filename`` is set.
        """
        if not specification.kind.startswith(f"{self._vendor}/"):
            raise ValueError(f"kind {specification.kind!r} is not of vendor {self._vendor}")
        content = json.dumps(specification.document(), indent=2) + "\n"
        with self._writing:
            return files.write(self.path / (file or specification.file), content)

    def publish(self, specifications: Iterable[Specification]) -> frozenset[str]:
        """Write these specifications to the directory, and remove all others of ours.

        Specifications without devices are skipped. Returns the qualified names of the devices,
        which a runtime can resolve now.

        Raises:
            ValueError: As for `write`.
            OSError: As for `write`, or a file cannot be removed.
        """
        wanted = {one.file: one for one in specifications if one.devices}
        for one in wanted.values():
            self.write(one)
        for path in self.own():
            if path.name not in wanted:
                files.remove(path)
        return frozenset(name for one in wanted.values() for name in one.names)

    def own(self) -> list[Path]:
        """Return the files of our vendor, including drafts, by their names and their content."""
        if not self.path.is_dir():
            return []
        prefixes = (f"{self._vendor}-", f".{self._vendor}-")
        return sorted(
            path
            for path in self.path.iterdir()
            if path.name.startswith(prefixes) and not path.is_dir() and self._is_own(path)
        )

    def _is_own(self, path: Path) -> bool:
        # vendor.com-gpu.json can belong to vendor.com, or to a vendor called vendor.com-gpu.
        try:
            text = content(path, LONGEST).decode(errors="replace") if path.is_file() else ""
        except ValueError:  # we write none that is so long
            return False
        found = _KIND.search(text)
        return found is None or found[1] == self._vendor
