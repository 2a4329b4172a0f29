"""A directory with specifications, of which some are ours."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Final

from deviceplugin.kit import files
from deviceplugin.kit.cdi._specification import Specification

_KIND: Final = re.compile(r"\bkind[\"']?\s*:\s*[\"']?([A-Za-z0-9_.-]+)/")


class Directory:
    """A directory of specifications, in which the files of ``vendor`` are ours and no others.

    Safe to be used by several threads. One process at a time owns a vendor.
    """

    def __init__(self, path: Path, vendor: str) -> None:
        self.path = path
        self._vendor = vendor
        self._writing = Lock()

    def write(self, specification: Specification, file: str = "") -> bool:
        """Have ``specification`` in a file, and return whether it was not there already.

        The directory is made. A reader sees the whole file or what was there before, and nothing
        is written where it says the same. The file is called ``file``, or by custom if not given.

        Raises:
            ValueError: A runtime would refuse it, or another vendor's is meant.
            OSError: It cannot be written, and what was there stays. ``filename`` is set.
        """
        if not specification.kind.startswith(f"{self._vendor}/"):
            raise ValueError(f"kind {specification.kind!r} is not of vendor {self._vendor}")
        content = json.dumps(specification.document(), indent=2) + "\n"
        with self._writing:
            return files.write(self.path / (file or specification.file), content)

    def publish(self, specifications: Iterable[Specification]) -> frozenset[str]:
        """Have these specifications in the directory, and no others of ours.

        Those without devices are left out. Returns the qualified names of their devices, which a
        runtime can resolve now.

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
        """Return the files that are ours, drafts included: ours by name, nobody else's inside."""
        if not self.path.is_dir():
            return []
        prefixes = (f"{self._vendor}-", f".{self._vendor}-")
        return sorted(
            path
            for path in self.path.iterdir()
            if path.name.startswith(prefixes) and not path.is_dir() and self._is_own(path)
        )

    def _is_own(self, path: Path) -> bool:
        # vendor.com-gpu.json may be of vendor.com, and of another called vendor.com-gpu.
        text = path.read_text(errors="replace") if path.is_file() else ""
        found = _KIND.search(text)
        return found is None or found[1] == self._vendor
