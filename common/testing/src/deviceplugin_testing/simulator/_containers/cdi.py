"""CDI specifications, as a container runtime reads them, and the edits that they make."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deviceplugin.kit.cdi._files import (
    SpecError,
    UnreadableYAMLError,
    names,
    read,
    specification_files,
)


class UnresolvableError(Exception):
    """Devices that no valid specification has."""


@dataclass(frozen=True, slots=True)
class _Device:
    """A device, and the edits of its specification, which count once for all its devices."""

    file: Path
    common: Mapping[str, Any]
    edits: Mapping[str, Any]


@dataclass(slots=True)
class Specifications:
    """The valid specifications in some directories; of equal devices, those in the last one win."""

    devices: dict[str, _Device] = field(default_factory=dict)
    documents: dict[Path, Any] = field(default_factory=dict)
    """What is in the valid files."""
    problems: dict[Path, str] = field(default_factory=dict)
    """The files that are ignored, and why."""

    @classmethod
    def read(cls, directories: Iterable[Path], newest: str) -> "Specifications":
        """Read the files in ``directories``; ``newest`` is the newest version known."""
        found = cls()
        for directory in directories:
            found.devices |= found._directory(directory, newest)
        return found

    def _directory(self, directory: Path, newest: str) -> dict[str, _Device]:
        devices: dict[str, _Device] = {}
        conflicts = set()
        for path in specification_files(directory):
            for name, device in self._file(path, newest):
                if name in devices:
                    conflicts.add(name)
                devices[name] = device
        return {name: device for name, device in devices.items() if name not in conflicts}

    def _file(self, path: Path, newest: str) -> Iterator[tuple[str, _Device]]:
        try:
            document = read(path, newest)
        except (OSError, SpecError, UnreadableYAMLError) as error:
            self.problems[path] = str(error)
            return
        self.documents[path] = document
        for name, device in zip(names(document), document["devices"], strict=True):
            yield name, _Device(path, document.get("containerEdits", {}), device["containerEdits"])

    def edits(self, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the edits for the devices ``names``, in the order in which they are applied.

        Raises:
            UnresolvableError: Some are in no valid specification.
        """
        missing = [name for name in names if name not in self.devices]
        if missing:
            raise UnresolvableError(f"unresolvable CDI devices {', '.join(missing)}")
        edits, used = [], set()
        for name in names:
            device = self.devices[name]
            if device.file not in used:
                used.add(device.file)
                edits.append(device.common)
            edits.append(device.edits)
        return edits
