"""GPU instances: which kinds a GPU can have and where, which it has, making and destroying one.

All of it needs the right to configure MIG, except for reading the mode.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from deviceplugin_gpu.nvml import api, gpu_facts
from deviceplugin_gpu.nvml.api import Handle, NvmlError, ask, call
from deviceplugin_gpu.snapshot import Mig

_MOST: Final = 64
"""Instances, or placements of a profile, that are read at most. GPUs of today have 7."""
_MIB: Final = 1 << 20
_ENGINES: Final = ("copyEngine", "decoder", "encoder", "jpeg", "ofa")
_KINDS: Final = ("copy", "decoder", "encoder", "jpeg", "ofa")
_SUFFIXES: Final = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    17: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
}
"""What no size tells of a profile, by NVML's number of it."""
_COMPUTE: Final = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
"""NVML's number of the profile of a compute instance, by its slices."""


class _Placement(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of GPU instance, with one compute instance that has all of it."""

    id: int
    """By which the GPU knows it."""
    mig: Mig
    """What such an instance has, and its name."""
    most: int
    """How many of it a GPU can have."""
    places: tuple[tuple[int, int], ...] = ()
    """The memory slices that it can have: the first, and how many."""


class Instance(NamedTuple):
    """A GPU instance that exists."""

    id: int
    profile: int
    place: tuple[int, int]


class Device(NamedTuple):
    """A MIG device: a compute instance of a GPU instance."""

    uuid: str
    number: int
    """Its index among the MIG devices of its GPU, as NVML counts them."""
    instance: int
    compute: int


def profiles(gpu: Handle) -> tuple[Profile, ...]:
    """Return the profiles of a GPU, each with its places, whether MIG is on or not."""
    found, total = [], int(call("nvmlDeviceGetMemoryInfo", gpu).total)
    for number in range(api.PROFILES):
        if read := ask(None, "nvmlDeviceGetGpuInstanceProfileInfo", gpu, number, 1):
            made = _profile(read, number, total)
            found.append(replace(made, places=tuple(_places(gpu, made.id))))
    return tuple(found)


def _profile(read: Any, number: int, total: int) -> Profile:
    slices = int(read.sliceCount)
    mig = Mig(
        uuid="",
        index=-1,
        gpu_instance=-1,
        compute_instance=-1,
        memory=int(read.memorySizeMB) * _MIB,
        slices=slices,
        compute_slices=slices,
        multiprocessors=int(read.multiprocessorCount),
        engines={
            kind: int(getattr(read, f"{name}Count"))
            for kind, name in zip(_KINDS, _ENGINES, strict=True)
        },
    )
    name = f"{gpu_facts.computed_profile(mig, total)}{_SUFFIXES.get(number, '')}"
    return Profile(int(read.id), replace(mig, profile=name), int(read.instanceCount))


def _places(gpu: Handle, profile: int) -> Iterator[tuple[int, int]]:
    places, count = (_Placement * _MOST)(), ctypes.c_uint(_MOST)
    function = "nvmlDeviceGetGpuInstancePossiblePlacements"
    if ask(None, function, gpu, profile, places, ctypes.byref(count)) is not None:
        yield from sorted((one.start, one.size) for one in places[: count.value])


def instances(gpu: Handle, known: Sequence[Profile]) -> list[Instance]:
    """Return the GPU instances of a GPU whose MIG mode is on."""
    found = []
    for profile in known:
        handles, count = (ctypes.c_void_p * _MOST)(), ctypes.c_uint(_MOST)
        given = gpu, profile.id, handles, ctypes.byref(count)
        if ask(None, "nvmlDeviceGetGpuInstances", *given) is not None:
            found += [_instance(ctypes.c_void_p(one)) for one in handles[: count.value]]
    return found


def _instance(handle: Handle) -> Instance:
    read = call("nvmlGpuInstanceGetInfo", handle)
    place = int(read.placement.start), int(read.placement.size)
    return Instance(int(read.id), int(read.profileId), place)


def devices(gpu: Handle) -> list[Device]:
    """Return the MIG devices of a GPU."""
    found = []
    for index in range(ask(0, "nvmlDeviceGetMaxMigDeviceCount", gpu)):
        one = ask(None, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
        if one is not None:
            instance = int(call("nvmlDeviceGetGpuInstanceId", one))
            compute = int(call("nvmlDeviceGetComputeInstanceId", one))
            found.append(Device(call("nvmlDeviceGetUUID", one), index, instance, compute))
    return found


def create(gpu: Handle, profile: Profile, place: tuple[int, int]) -> Instance:
    """Make a GPU instance there, without a compute instance."""
    given = gpu, profile.id, ctypes.byref(_Placement(*place))
    return _instance(call("nvmlDeviceCreateGpuInstanceWithPlacement", *given))


def complete(gpu: Handle, instance: int, profile: Profile) -> Device:
    """Make the compute instance that has all of a GPU instance, and return its MIG device."""
    handle = call("nvmlDeviceGetGpuInstanceById", gpu, instance)
    number = _COMPUTE.get(profile.mig.slices, -1)
    kind = call("nvmlGpuInstanceGetComputeInstanceProfileInfo", handle, number, 0, 1)
    call("nvmlGpuInstanceCreateComputeInstance", handle, int(kind.id))
    for one in devices(gpu):
        if one.instance == instance:
            return one
    raise NvmlError("nvmlDeviceGetMigDeviceHandleByIndex", api.NOT_FOUND, "no MIG device appeared")


def destroy(gpu: Handle, instance: int, computes: Sequence[int] = ()) -> None:
    """Destroy these compute instances of a GPU instance, and then itself."""
    handle = call("nvmlDeviceGetGpuInstanceById", gpu, instance)
    for number in computes:
        one = call("nvmlGpuInstanceGetComputeInstanceById", handle, number)
        call("nvmlComputeInstanceDestroy", one)
    call("nvmlGpuInstanceDestroy", handle)


def mode(gpu: Handle) -> tuple[bool, bool]:
    """Return whether MIG is on, and whether it will be after a reset."""
    now, pending = call("nvmlDeviceGetMigMode", gpu)
    return bool(now), bool(pending)


def switch(gpu: Handle, *, on: bool) -> None:
    """Switch MIG on or off now, or raise NvmlError and leave it as it is, with nothing pending."""
    status = int(call("nvmlDeviceSetMigMode", gpu, int(on)))
    if status or mode(gpu) != (on, on):
        call("nvmlDeviceSetMigMode", gpu, int(not on))
        raise api.failure("nvmlDeviceSetMigMode", status or api.RESET_REQUIRED)


def blocked(gpu: Handle) -> str:
    """Return why instances of this GPU cannot be made, whatever its MIG mode; empty if they can."""
    shared: Mapping[int | None, str] = {
        api.VGPU: "it is a virtual GPU, whose host divides it",
        api.HOST_VGPU: "the host has it for virtual GPUs",
        api.HOST_VSGA: "the host has it for virtual GPUs",
    }
    return shared.get(ask(None, "nvmlDeviceGetVirtualizationMode", gpu), "")
