"""The container runtime, as far as it concerns devices: it adds the edits of CDI devices."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._containers.cdi import Specifications, UnresolvableError
from deviceplugin_testing.simulator._errors import ContainerCreateError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import RunOptions


class Runtime:
    """Creates containers. It reads the CDI directories anew each time."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def create(self, options: RunOptions | None) -> RunOptions | None:
        """Return what the container has in the end.

        Raises:
            ContainerCreateError: A CDI device is in no valid specification.
        """
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
        return _edited(options, edits)


def _edited(options: RunOptions, edits: Iterable[Mapping[str, Any]]) -> RunOptions:
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
