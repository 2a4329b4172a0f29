"""Making one MIG device for a claim, and removing it."""

from collections.abc import Callable, Collection, Mapping

import deviceplugin as dp
from deviceplugin_gpu.nvml import instances
from deviceplugin_gpu.nvml.api import Handle, call
from deviceplugin_gpu.nvml.instances import Device, Instance
from deviceplugin_gpu.nvml.processes import memory_by_pid
from deviceplugin_gpu.parts.plan import Part, owned


def make(
    gpu: Handle,
    part_id: str,
    parts: Mapping[str, Part],
    identity: str,
    begin: Callable[[], None],
    *,
    is_begun: bool,
) -> Device:
    """Return the MIG device in the place of a part: made now, finished, or as it was made before.

    ``parts`` are all of this GPU. What is in its place was made by somebody else if it has another
    UUID than ``identity``, or if that is not known yet, if a process uses it or the part was not
    begun: ``begin`` does that, while the place is empty. After an error of NVML something may be
    left of a part that was begun.
    """
    part = parts[part_id]
    instance, inside = _find(gpu, part_id, parts, identity)
    if instance is None:
        begin()
        instance = instances.create(gpu, part.profile, part.place)
    elif not _is_ours(gpu, inside, identity, is_begun=is_begun) or len(inside) > 1:
        other = inside[0].uuid if inside else f"GPU instance {instance.id}"
        raise dp.AllocationError(f"{part_id}: somebody else has made {other} in its place")
    elif inside:
        return inside[0]
    return instances.complete(gpu, instance.id, part.profile)


def remove(
    gpu: Handle, part_id: str, parts: Mapping[str, Part], identity: str, *, is_begun: bool
) -> bool:
    """Remove a part, or what is left of it; NvmlError if it is still there.

    Return whether nothing else is left of this GPU: it could be used as a whole again.
    """
    instance, inside = _find(gpu, part_id, parts, identity)
    if instance and _is_ours(gpu, inside, identity, is_begun=is_begun):
        instances.destroy(gpu, instance.id, [one.compute for one in inside])
    profiles = {part.profile.id: part.profile for part in parts.values()}
    return not instances.instances(gpu, [*profiles.values()])


def _find(
    gpu: Handle, part_id: str, parts: Mapping[str, Part], identity: str
) -> tuple[Instance | None, list[Device]]:
    """Return the GPU instance of a part, if there is one, and the MIG devices in it."""
    profiles = {part.profile.id: part.profile for part in parts.values()}
    there = instances.instances(gpu, [*profiles.values()])
    devices = instances.devices(gpu)
    migs = {one.uuid: one.instance for one in devices}
    # What was made again by somebody else is found by its place, too, and then has another UUID.
    found = owned(parts, there, migs, {(part_id, identity if identity in migs else "")})
    instance = found.get(part_id)
    return instance, [one for one in devices if instance and one.instance == instance.id]


def _is_ours(gpu: Handle, inside: Collection[Device], identity: str, *, is_begun: bool) -> bool:
    if identity:
        return not inside or identity in {one.uuid for one in inside}
    return is_begun and not any(_is_used(gpu, one) for one in inside)


def _is_used(gpu: Handle, device: Device) -> bool:
    """Return whether a process uses it. Nobody has got a part that is not finished."""
    handle = call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, device.number)
    return bool(memory_by_pid(handle))
