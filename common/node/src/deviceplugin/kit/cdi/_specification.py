"""The content of a CDI specification, the version it needs, and what runtimes would refuse."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from deviceplugin.kit import files
from deviceplugin.model import DeviceNode, Mount

_QUALIFIER: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_MAX_VENDOR, _MAX_CLASS = 253, 63

HookName = Literal[
    "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"
]


@dataclass(frozen=True, slots=True)
class Hook:
    """A program of the host that the runtime calls while it creates a container."""

    name: HookName
    path: str
    args: Sequence[str] = ()
    """All arguments; the first is the name of the program."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Edits:
    """What a container gets, without duplicates. ``a + b`` joins two; variables of ``b`` win."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    nodes: Sequence[DeviceNode] = ()
    mounts: Sequence[Mount] = ()
    """Mounted with ``nosuid`` and ``nodev``."""
    hooks: Sequence[Hook] = ()
    gids: Sequence[int] = ()
    """Supplementary groups of the container's process. Runtimes from before 2024 reject them."""

    def __post_init__(self) -> None:
        for name in ("nodes", "mounts", "hooks", "gids"):
            object.__setattr__(self, name, _both((), getattr(self, name)))

    def __bool__(self) -> bool:
        return any((self.env, self.nodes, self.mounts, self.hooks, self.gids))

    def __add__(self, other: "Edits") -> "Edits":
        return Edits(
            {**self.env, **other.env},
            _both(self.nodes, other.nodes),
            _both(self.mounts, other.mounts),
            _both(self.hooks, other.hooks),
            _both(self.gids, other.gids),
        )

    def document(self) -> dict[str, Any]:
        """Return it as JSON of a specification, without empty fields."""
        made: dict[str, Any] = {
            "env": [f"{name}={value}" for name, value in self.env.items()],
            "deviceNodes": [_node(node) for node in self.nodes],
            "mounts": [_mount(mount) for mount in self.mounts],
            "hooks": [_hook(hook) for hook in self.hooks],
            "additionalGids": list(self.gids),
        }
        return {key: value for key, value in made.items() if value}


@dataclass(frozen=True, slots=True)
class Specification:
    """Devices of one kind, by name, and what a container gets for having any of them."""

    kind: str
    """Vendor and class, such as ``vendor.example.com/gpu``."""
    devices: Mapping[str, Edits]
    edits: Edits = field(default_factory=Edits)

    @property
    def names(self) -> frozenset[str]:
        """The qualified names of its devices, such as ``vendor.example.com/gpu=0``."""
        return frozenset(f"{self.kind}={name}" for name in self.devices)

    @property
    def file(self) -> str:
        """The conventional name of its file."""
        return f"{self.kind.replace('/', '-')}.json"

    def document(self) -> dict[str, Any]:
        """Return it as JSON, with the oldest version that has all it uses.

        Raises:
            ValueError: A runtime would refuse it. The message has all reasons, a line each.
        """
        if faults := "\n".join(_faults(self)):
            raise ValueError(faults)
        devices = [
            {"name": name, "containerEdits": edits.document()}
            for name, edits in self.devices.items()
        ]
        document: dict[str, Any] = {"kind": self.kind, "devices": devices}
        if self.edits:
            document["containerEdits"] = self.edits.document()
        return {"cdiVersion": least_version(document), **document}

    def __add__(self, other: "Specification") -> "Specification":
        """Return a specification of the devices of both. A device in both has the edits of both.

        Raises:
            ValueError: They are of different kinds.
        """
        if self.kind != other.kind:
            raise ValueError(f"{self.kind} and {other.kind} cannot be in one specification")
        devices = {
            name: self.devices.get(name, Edits()) + other.devices.get(name, Edits())
            for name in (*self.devices, *other.devices)
        }
        return Specification(self.kind, devices, self.edits + other.edits)


def is_kind(text: str) -> bool:
    """Return whether ``text`` is a vendor and a class, such as ``vendor.example.com/gpu``."""
    vendor, _, name = text.partition("/")
    return (
        _QUALIFIER.fullmatch(vendor) is not None
        and _QUALIFIER.fullmatch(name) is not None
        and len(vendor) <= _MAX_VENDOR
        and len(name) <= _MAX_CLASS
    )


def is_device_name(text: str) -> bool:
    """Return whether a device can be called ``text``."""
    return _DEVICE.fullmatch(text) is not None


def least_version(document: Mapping[str, Any]) -> str:
    """Return the oldest version of CDI that has all that ``document`` uses, such as ``0.5.0``.

    A runtime refuses a version that is newer than it knows, and one that is too old for the
    content of the file.
    """
    return max(_versions(document), key=lambda one: tuple(map(int, one.split("."))))


def _versions(document: Mapping[str, Any]) -> Iterator[str]:
    yield "0.3.0"
    devices = document["devices"]
    if any(device["name"][0].isdigit() for device in devices):
        yield "0.5.0"
    if "." in document["kind"].partition("/")[2]:
        yield "0.6.0"
    if any(one.get("annotations") for one in (document, *devices)):
        yield "0.6.0"
    for one in (document, *devices):
        yield from _versions_of_edits(one.get("containerEdits", {}))


def _versions_of_edits(edits: Mapping[str, Any]) -> Iterator[str]:
    if any("type" in mount for mount in edits.get("mounts", ())):
        yield "0.4.0"
    if any("hostPath" in node for node in edits.get("deviceNodes", ())):
        yield "0.5.0"
    cache = edits.get("intelRdt", {})
    if cache or edits.get("additionalGids"):
        yield "0.7.0"
    if edits.get("netDevices") or {"schemata", "enableMonitoring"} & cache.keys():
        yield "1.1.0"


def _faults(specification: Specification) -> Iterator[str]:
    kind = specification.kind
    if not is_kind(kind):
        yield f"kind {kind!r} is not of the form vendor.example.com/class"
    if not specification.devices:
        yield f"{kind} has no devices"
    for name, edits in specification.devices.items():
        if not is_device_name(name):
            yield f"{kind}: {name!r} is not a name of a device: letters, digits, and _.:- inside"
        if not edits:
            yield f"{kind}: device {name} edits nothing"
        yield from (f"{kind}: device {name}: {fault}" for fault in _faults_of_edits(edits))
    yield from (f"{kind}: {fault}" for fault in _faults_of_edits(specification.edits))


def _faults_of_edits(edits: Edits) -> Iterator[str]:
    yield from (f"{one!r} is not a variable" for one in edits.env if not one or "=" in one)
    for node in edits.nodes:
        if not node.permissions or not {*node.permissions} <= {*"rwm"}:
            yield f"{node.container_path}: permissions {node.permissions!r} are not of rwm"
    nodes = [path for one in edits.nodes for path in (one.host_path, one.container_path)]
    mounts = [path for one in edits.mounts for path in (one.host_path, one.container_path)]
    paths = [*nodes, *mounts, *(one.path for one in edits.hooks)]
    yield from (f"path {path!r} {what}" for path in paths if (what := files.path_problem(path)))


def _node(node: DeviceNode) -> dict[str, str]:
    written = {"path": node.container_path, "permissions": node.permissions}
    if node.host_path != node.container_path:
        written["hostPath"] = node.host_path
    return written


def _mount(mount: Mount) -> dict[str, Any]:
    access = "ro" if mount.read_only else "rw"
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": [access, "nosuid", "nodev", "rbind", "rprivate"],
    }


def _hook(hook: Hook) -> dict[str, Any]:
    made = {
        "hookName": hook.name,
        "path": hook.path,
        "args": list(hook.args),
        "env": [f"{name}={value}" for name, value in hook.env.items()],
    }
    return {key: value for key, value in made.items() if value}


def _both(one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
    found = list(one)
    for each in other:
        if each not in found:  # a set would want a hook's list hashed
            found.append(each)
    return tuple(found)
