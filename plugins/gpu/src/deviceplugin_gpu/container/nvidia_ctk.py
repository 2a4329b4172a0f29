"""The CDI specification that NVIDIA's container toolkit generates, where there is one.

``Toolkit().find()`` at each discovery; then ``name`` says what a GPU or MIG device is called in
it, if it is. It has the driver's libraries too, which ours has not.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from deviceplugin_gpu.snapshot import Gpu, Mig

log = logging.getLogger(__name__)

KIND: Final = "nvidia.com/gpu"
DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Of the same device in several, the last one counts."""
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Generated:
    """What the toolkit's specifications have."""

    names: frozenset[str] = frozenset()
    """Of devices, without the kind."""

    def name(self, gpu: Gpu, mig: Mig | None = None) -> str | None:
        """Return the qualified name of a device by UUID or else by index; None if it has none."""
        if mig is None:
            names = [gpu.uuid, str(gpu.index)]
        else:
            names = [mig.uuid, f"{gpu.index}:{mig.index}"]
        return next((f"{KIND}={name}" for name in names if name in self.names), None)


class Toolkit:
    """Finds generated specifications; one that has not changed is not read again."""

    def __init__(self, directories: Sequence[Path] = DIRECTORIES) -> None:
        self._directories = directories
        self._read: dict[Path, tuple[tuple[int, int], frozenset[str]]] = {}

    def find(self) -> Generated:
        """Return what is there now. A file that cannot be read is logged once and left out."""
        read = {path: self._file(path) for path in self._files()}
        self._read = {path: entry for path, entry in read.items() if entry is not None}
        return Generated(frozenset().union(*(names for _, names in self._read.values())))

    def _files(self) -> Iterator[Path]:
        for directory in self._directories:
            for suffix in ("json", "yaml"):
                yield from directory.glob(f"nvidia*.{suffix}")

    def _file(self, path: Path) -> tuple[tuple[int, int], frozenset[str]] | None:
        with suppress(FileNotFoundError):
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            before = self._read.get(path)
            if before is not None and before[0] == stamp:
                return before
            return stamp, _names(path)
        return None


def _names(path: Path) -> frozenset[str]:
    try:
        document = _parsed(path, path.read_text(encoding="utf-8"))
        if document["kind"] != KIND:
            return frozenset()
        return frozenset(str(device["name"]) for device in document["devices"])
    except (
        *(OSError, ValueError, TypeError, LookupError, RecursionError, MemoryError),
        yaml.YAMLError,
    ) as error:
        text = str(error) or type(error).__name__
        log.warning(
            "a CDI specification is left out: it cannot be read",
            extra={"file": str(path), "error": text.splitlines()[0]},
        )
        return frozenset()


def _parsed(path: Path, text: str) -> Any:
    if path.suffix == ".json":
        return json.loads(text)
    return yaml.load(text, _Loader)  # noqa: S506 - a safe one
