"""Files of CDI specifications: those that a runtime reads, which ignores faulty ones, and ours."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast, get_args

from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.documents.nulls import without_nulls
from deviceplugin._config.documents.reading import content
from deviceplugin.kit import files
from deviceplugin.kit.cdi._specification import (
    HookName,
    Specification,
    is_device_name,
    is_kind,
    least_version,
)

VERSIONS: Final = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""The versions of CDI specifications, oldest first."""
SUFFIXES: Final = frozenset({".json", ".yaml"})
"""Endings of the files that runtimes read."""
_VERSION: Final = re.compile(r"v?(\d+\.\d+\.\d+)")
_FIELDS: Final = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
_DEVICE_FIELDS: Final = {"name", "annotations", "containerEdits"}
_HOOKS: Final = frozenset(get_args(HookName))
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
LONGEST: Final = 16 * 1024**2
"""Bytes of a file that is read. One that names a thousand devices has less than one MiB."""
_DEPTH: Final = 6
"""How deep the fields of a specification lie: devices[].containerEdits.mounts[].options."""
_KIND: Final = re.compile(r"\bkind[\"']?\s*:\s*[\"']?([A-Za-z0-9_.-]+)/")


class SpecError(Exception):
    """A runtime would reject the file. The message says why."""


class UnreadableYAMLError(Exception):
    """PyYAML, which could read the file, is not installed."""


def specification_files(directory: Path) -> list[Path]:
    """Return the files in ``directory`` that a runtime reads, by name."""
    found = directory.iterdir() if directory.is_dir() else ()
    return sorted(path for path in found if path.suffix in SUFFIXES)


def read(path: Path, newest: str = "") -> Mapping[str, Any]:
    """Return the specification in ``path``; SpecError if a runtime would reject the file.

    ``newest`` is the newest version that the runtime knows. If that is unknown, a version that is
    not among `VERSIONS` may have fields that are not known here. UnreadableYAMLError if it is YAML,
    and PyYAML is not installed; OSError if it cannot be read.
    """
    found: object = without_nulls(parse(path), _DEPTH)
    if not isinstance(found, dict):
        raise SpecError("is not an object with keys")
    document = cast("Mapping[str, Any]", found)
    try:
        fault = next(_faults(document, newest), "")
    except KeyError as error:
        fault = f"{error.args[0]} is missing"
    except (TypeError, ValueError, AttributeError) as error:
        fault = f"is not a specification: {error}"
    if fault:
        raise SpecError(bounded(fault))
    return document


def names(document: Mapping[str, Any]) -> list[str]:
    """Return the full names of the devices of a specification, such as ``example.com/gpu=0``."""
    return [f"{document['kind']}={_name(device)}" for device in document["devices"]]


def _name(device: Mapping[str, Any]) -> str:
    name = device["name"]
    return str(name) if isinstance(name, int) else name  # runtimes take a number for its text


def parse(path: Path) -> Any:
    """Return what a specification file contains, whether or not a runtime would accept it.

    Raises:
        SpecError: It is not JSON or YAML, or is larger than any.
        OSError: It cannot be read.
    """
    try:
        text = content(path, LONGEST).decode(errors="replace")
        if path.suffix == ".json":
            return json.loads(text)
        from deviceplugin._config.documents.yaml_nodes import plain

        return next(iter(plain(text)), None)  # of several, the first one counts
    except ImportError as error:
        message = "YAML needs PyYAML: pip install pyyaml"
        raise UnreadableYAMLError(message) from error
    except (ValueError, RecursionError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise SpecError(f"is not valid {path.suffix[1:].upper()}: {reason}") from error


def _faults(document: Mapping[str, Any], newest: str) -> Iterator[str]:
    """Yield why a runtime rejects the file."""
    found, kind, devices = document["cdiVersion"], document["kind"], document.get("devices", ())
    version = _VERSION.fullmatch(found)
    if version is None:
        yield f"cdiVersion {found!r} is not a version such as '0.5.0'"
    elif newest and version[1] not in VERSIONS[: VERSIONS.index(newest) + 1]:
        yield f"invalid version {found!r}: this runtime knows {newest} at most"
    if not is_kind(kind):
        yield f"invalid kind {kind!r}: not of the form vendor.example.com/class"
    if not devices:
        yield "invalid spec, no devices"
    named = [_name(device) for device in devices]
    yield from (f"invalid device name {name!r}" for name in named if not is_device_name(name))
    if len({*named}) < len(named):
        yield "multiple devices of the same name"
    if version and version[1] in VERSIONS:
        yield from _faults_of_fields(document, version[1])


def _faults_of_fields(document: Mapping[str, Any], version: str) -> Iterator[str]:
    yield from (f"unknown field {name!r}" for name in document.keys() - _FIELDS)
    yield from _faults_of_edits(document.get("containerEdits", {}))
    for device in document["devices"]:
        yield from _faults_of_device(device)
    named = [{**device, "name": _name(device)} for device in document["devices"]]
    needed = least_version({**document, "devices": named})
    if VERSIONS.index(version) < VERSIONS.index(needed):
        yield f"the spec version must be at least v{needed}"


def _faults_of_device(device: Mapping[str, Any]) -> Iterator[str]:
    name = device["name"]
    yield from (f"device {name}: unknown field {key!r}" for key in device.keys() - _DEVICE_FIELDS)
    edits: Mapping[str, Any] = device.get("containerEdits", {})
    if not any(edits.values()):
        yield f"invalid device {name}, empty device edits"
    yield from (f"device {name}: {fault}" for fault in _faults_of_edits(edits))


def _faults_of_edits(edits: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown field {key!r}" for key in edits.keys() - _REQUIRED.keys() - _OTHER)
    for variable in edits.get("env", ()):
        if "=" not in variable.removeprefix("="):
            yield f"invalid environment variable {variable!r}"
    for key, (required, optional) in _REQUIRED.items():
        for entry in edits.get(key, ()):
            yield from (f"{key}: {name} is empty" for name in required if not entry.get(name))
            unknown = entry.keys() - required - optional
            yield from (f"{key}: unknown field {name!r}" for name in unknown)
    yield from _faults_of_values(edits)


def _faults_of_values(edits: Mapping[str, Any]) -> Iterator[str]:
    for node in edits.get("deviceNodes", ()):
        permissions = node.get("permissions", "")
        if not set(permissions) <= set("rwm") and permissions != "none":
            yield f"device {node['path']!r} has invalid permissions {permissions!r}"
    for hook in edits.get("hooks", ()):
        if hook["hookName"] not in _HOOKS:
            yield f"invalid hook name {hook['hookName']!r}"


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
