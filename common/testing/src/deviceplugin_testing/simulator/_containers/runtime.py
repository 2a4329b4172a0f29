"""The container runtime, as far as it concerns devices: it adds the edits of CDI devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.cdi._files import (
    SpecError,
    UnreadableYAMLError,
    names,
    read,
    specification_files,
)
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager.allocating import Allocator
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._errors import (
    AllocationRefusedError,
    CallError,
    ContainerCreateError,
    ContainerStartError,
)
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod, RunOptions


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
        """Return the edits of devices in the order of ``names``; raise ``UnresolvableError``."""
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


class Runtime:
    """Creates containers. It reads the CDI directories anew each time."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def create(self, options: RunOptions | None) -> RunOptions | None:
        """Return what the container has in the end; raise ``ContainerCreateError``."""
        if options is None:
            return None
        names = list(options.claim_cdi_devices)
        if self._host.config.cdi_dirs:
            names += options.cdi_devices
        found = Specifications.read(self._host.cdi_dirs, self._host.config.cdi_version)
        try:
            edits = found.edits(list(dict.fromkeys(names)))
        except UnresolvableError as error:
            why = "; ".join(f"{path.name}: {text}" for path, text in found.problems.items())
            raise ContainerCreateError(
                f"CDI device injection failed: {error}" + (f" ({why})" if why else "")
            ) from None
        return edited(options, edits)


def edited(options: RunOptions, edits: Iterable[Mapping[str, Any]]) -> RunOptions:
    """Apply ``edits`` in their order: of equal variables and paths, the last one counts."""
    envs = dict(options.envs)
    devices = {device.container_path: device for device in options.devices}
    mounts = {mount.container_path: mount for mount in options.mounts}
    hooks, gids = list(options.hooks), dict.fromkeys(options.gids)
    for one in edits:
        envs |= dict(variable.split("=", 1) for variable in one.get("env", ()))
        devices |= {node["path"]: _node(node) for node in one.get("deviceNodes", ())}
        mounts |= {mount["containerPath"]: _mount(mount) for mount in one.get("mounts", ())}
        hooks += one.get("hooks", ())
        gids |= dict.fromkeys(one.get("additionalGids", ()))
    return replace(
        options,
        envs=envs,
        devices=tuple(devices.values()),
        mounts=tuple(mounts.values()),
        hooks=tuple(hooks),
        gids=tuple(gids),
    )


def _node(node: Mapping[str, Any]) -> pb.DeviceSpec:
    permissions = node.get("permissions") or "rwm"
    return pb.DeviceSpec(
        container_path=node["path"],
        host_path=node.get("hostPath", node["path"]),
        permissions="" if permissions == "none" else permissions,
    )


def _mount(mount: Mapping[str, Any]) -> pb.Mount:
    return pb.Mount(
        container_path=mount["containerPath"],
        host_path=mount["hostPath"],
        read_only="ro" in mount.get("options", ()),
    )


_LONGEST_NAME: Final = 63
"""Most characters of an annotation's name after its prefix. A longer one is not written."""


class Starter:
    """Prepares containers for the runtime."""

    def __init__(self, host: Host, manager: DeviceManager, allocator: Allocator) -> None:
        self._host = host
        self._manager = manager
        self._allocator = allocator

    def run_options(self, pod: Pod, container: Container) -> RunOptions | None:
        """Return what the container gets, after PreStartContainer if a plugin requires it.

        None if the container has no devices. Devices that admission should have allocated, but
        did not, are allocated now.

        Raises:
            ContainerStartError: A call to a plugin failed, or devices are missing.
        """
        try:
            if self._prepare(pod, container):
                self._allocator.allocate(pod, container)
        except AllocationRefusedError as error:
            raise ContainerStartError(str(error)) from None
        with self._host.changed:
            grants = self._manager.records.of_container(pod.uid, container.name)
            order = self._host.shuffled(set(grants))
            if not grants:
                return None
            options = RunOptions.merge(grants[resource].response for resource in order)
            return self._passed(options, f"{pod.uid}-{container.name}")

    def _passed(self, options: RunOptions, owner: str) -> RunOptions:
        """Return ``options`` with the CDI names in the form that this release passes on."""
        release = self._host.release
        if not release.passes_cdi_names:
            return replace(options, cdi_devices=())
        name = f"devicemanager_{owner.replace('/', '_')}"
        if not (release.annotates_cdi_names and options.cdi_devices) or len(name) > _LONGEST_NAME:
            return options
        annotation = {f"cdi.k8s.io/{name}": ",".join(sorted(options.cdi_devices))}
        return replace(options, annotations={**annotation, **options.annotations})

    def _prepare(self, pod: Pod, container: Container) -> bool:
        """Call PreStartContainer if it is required; return whether any devices are missing."""
        missing = False
        for resource in self._host.shuffled(set(container.limits)):
            with self._host.changed:
                managed = self._manager.manages(resource)
            if not managed or not container.limits[resource] or self._leaves(container, resource):
                continue
            self._pre_start(pod, container, resource)
            with self._host.changed:
                grant = self._manager.records.get(pod.uid, container.name, resource)
                missing |= grant is None and self._manager.active(pod.uid)
        return missing

    def _leaves(self, container: Container, resource: str) -> bool:
        """Return whether the resource is a claim's, and the kubelet takes that into account."""
        return (
            resource in container.claimed
            and self._host.release.leaves_claimed
            and not self._host.behaviour.claimed_resource_needs_pre_start
        )

    def _pre_start(self, pod: Pod, container: Container, resource: str) -> None:
        with self._host.changed:
            endpoint = self._manager.endpoints.get(resource)
            if endpoint is None:
                raise ContainerStartError(
                    f"endpoint not found in cache for a registered resource: {resource}"
                )
            if not (endpoint.options and endpoint.options.pre_start_required):
                return
            grant = self._manager.records.get(pod.uid, container.name, resource)
            if grant is None:
                raise ContainerStartError(
                    f"no devices found allocated in local cache for pod {pod.uid}, "
                    f"container {container.name}, resource {resource}"
                )
            ids = self._host.shuffled(grant.ids)
        try:
            endpoint.call(
                "PreStartContainer",
                pb.PreStartContainerRequest(devices_ids=ids),
                self._host.config.pre_start_timeout,
            )
        except CallError as error:
            self._manager.check_alive()
            raise ContainerStartError(
                f"device plugin PreStartContainer rpc failed with err: {error}"
            ) from None
