"""Asking a plugin what a container gets, and what that is on the wire."""

from collections.abc import Sequence

from deviceplugin._inventory.validation import allocation_problem
from deviceplugin.model import Allocation, Device, DeviceNode, Mount
from deviceplugin.plugin import Plugin, overrides
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb


def hook_of(plugin: Plugin) -> str:
    """Return the name of the hook that `allocation_of` calls."""
    return "allocate" if plugin.parameters is None else "allocate_with"


def allocation_of(
    plugin: Plugin, devices: Sequence[Device], parameters: object = None
) -> Allocation:
    """Return what a container that is given ``devices`` gets, according to ``plugin``.

    ``parameters`` are of the class that the plugin names; None are its defaults. It raises what the
    plugin raises, and TypeError if that returned what no container can get.
    """
    allocation: object
    if plugin.parameters is None:
        allocation = plugin.allocate(devices)
    else:
        given = plugin.parameters() if parameters is None else parameters
        allocation = plugin.allocate_with(devices, given)
    if not has_own_allocate(plugin) and isinstance(allocation, Allocation):
        return allocation  # the sum of what was checked at the discovery
    if not isinstance(allocation, Allocation):
        raise TypeError(f"{hook_of(plugin)}() must return an Allocation, not {allocation!r}")
    if problem := allocation_problem(allocation):
        raise TypeError(f"{hook_of(plugin)}() returned what cannot be used: {problem}")
    return allocation


def has_own_allocate(plugin: Plugin) -> bool:
    """Return whether allocating calls code of the plugin, which needs a time limit."""
    return overrides(plugin, "allocate") or overrides(plugin, "allocate_with")


def encode_allocation(allocation: Allocation) -> pb.ContainerAllocateResponse:
    response = pb.ContainerAllocateResponse(
        envs=allocation.envs, annotations=allocation.annotations
    )
    for mount in allocation.mounts:
        paths = {"container_path": mount.container_path, "host_path": mount.host_path}
        response.mounts.add(**paths, read_only=mount.read_only)
    for node in allocation.nodes:
        paths = {"container_path": node.container_path, "host_path": node.host_path}
        response.devices.add(**paths, permissions=node.permissions)
    for name in allocation.cdi_names:
        response.cdi_devices.add(name=name)
    return response


def decode_allocation(response: pb.ContainerAllocateResponse) -> Allocation:
    return Allocation(
        nodes=[DeviceNode(n.host_path, n.container_path, n.permissions) for n in response.devices],
        mounts=[Mount(m.host_path, m.container_path, m.read_only) for m in response.mounts],
        envs=dict(response.envs),
        annotations=dict(response.annotations),
        cdi_names=[device.name for device in response.cdi_devices],
    )
