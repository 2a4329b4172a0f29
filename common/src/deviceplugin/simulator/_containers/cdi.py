"""CDI specifications, as a container runtime reads them, and the edits that they make."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.cdi import is_device_name, is_kind, least_version
from deviceplugin.simulator._documents import documents
from deviceplugin.simulator._host.config import CDI_VERSIONS

SUFFIXES: Final = frozenset({".json", ".yaml"})
"""Endings of the files that runtimes read."""
_FIELDS: Final = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
_DEVICE_FIELDS: Final = {"name", "annotations", "containerEdits"}
_HOOKS: Final = {
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
}
_REQUIRED: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "deviceNodes": (
        frozenset({"path"}),
        frozenset({"hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}),
    ),
    "mounts": (frozenset({"hostPath", "containerPath"}), frozenset({"options", "type"})),
    "hooks": (frozenset({"hookName", "path"}), frozenset({"args", "env", "timeout"})),
    "netDevices": (frozenset({"hostInterfaceName", "name"}), frozenset()),
}
"""Lists of container edits: the fields that each entry must have, and those that it may have."""
_OTHER: Final = {"env", "additionalGids", "intelRdt"}


class UnresolvableError(Exception):
    """Devices that no valid specification has."""


def specification_files(directory: Path) -> list[Path]:
    """Return the files in ``directory`` that a runtime reads, by name."""
    found = directory.iterdir() if directory.is_dir() else ()
    return sorted(path for path in found if path.suffix in SUFFIXES)


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
        document: Any = {}
        try:
            document = next(iter(documents(path)), {})  # of several, the first one counts
            complaint = next(_complaints(document, newest), "")
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            complaint = str(error) or repr(error)
        if complaint:
            self.problems[path] = complaint
            return
        self.documents[path] = document
        for device in document["devices"]:
            edits = device["containerEdits"]
            name = f"{document['kind']}={device['name']}"
            yield name, _Device(path, document.get("containerEdits", {}), edits)

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


def _complaints(document: Any, newest: str) -> Iterator[str]:
    """Yield why a runtime rejects the file."""
    yield from (f"unknown field {name!r}" for name in document.keys() - _FIELDS)
    version, kind = document["cdiVersion"], document["kind"]
    if version not in CDI_VERSIONS[: CDI_VERSIONS.index(newest) + 1]:
        yield f"invalid version {version!r}: this runtime knows {newest} at most"
    if not is_kind(kind):
        yield f"invalid kind {kind!r}"
    names = [device["name"] for device in document["devices"]]
    if not names:
        yield "invalid spec, no devices"
    yield from _complaints_of_edits(document.get("containerEdits", {}))
    for device in document["devices"]:
        yield from _complaints_of_device(device)
    if len(set(names)) < len(names):
        yield "multiple devices of the same name"
    needed = least_version(document)
    if CDI_VERSIONS.index(version) < CDI_VERSIONS.index(needed):
        yield f"the spec version must be at least v{needed}"


def _complaints_of_device(device: Mapping[str, Any]) -> Iterator[str]:
    name = device["name"]
    if not is_device_name(name):
        yield f"invalid device name {name!r}"
    yield from (f"device {name}: unknown field {key!r}" for key in device.keys() - _DEVICE_FIELDS)
    edits = device.get("containerEdits") or {}
    if not any(edits.values()):
        yield f"invalid device {name}, empty device edits"
    yield from (f"device {name}: {complaint}" for complaint in _complaints_of_edits(edits))


def _complaints_of_edits(edits: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown field {key!r}" for key in edits.keys() - _REQUIRED.keys() - _OTHER)
    for variable in edits.get("env", ()):
        if "=" not in variable.removeprefix("="):
            yield f"invalid environment variable {variable!r}"
    for key, (required, optional) in _REQUIRED.items():
        for entry in edits.get(key, ()):
            yield from (f"{key}: {name} is empty" for name in required if not entry.get(name))
            unknown = entry.keys() - required - optional
            yield from (f"{key}: unknown field {name!r}" for name in unknown)
    yield from _complaints_of_values(edits)


def _complaints_of_values(edits: Mapping[str, Any]) -> Iterator[str]:
    for node in edits.get("deviceNodes", ()):
        permissions = node.get("permissions", "")
        if not set(permissions) <= set("rwm") and permissions != "none":
            yield f"device {node['path']!r} has invalid permissions {permissions!r}"
    for hook in edits.get("hooks", ()):
        if hook["hookName"] not in _HOOKS:
            yield f"invalid hook name {hook['hookName']!r}"
