"""Reading the MIG devices of one GPU."""

import logging
import math
import re
from dataclasses import replace
from typing import Any, Final

from deviceplugin_gpu.nvml import api
from deviceplugin_gpu.nvml.api import Handle, NvmlError, ask, call
from deviceplugin_gpu.snapshot import Mig

log = logging.getLogger(__name__)

_PROFILE: Final = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)", re.IGNORECASE)
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_EIGHTHS: Final = 8
"""Fractions in which the memory of a GPU is given to MIG devices."""


def read(gpu: Handle, total: int) -> tuple[Mig, ...]:
    """Return the MIG devices of ``gpu``, which has ``total`` bytes. Invalid ones are skipped.

    Raises:
        NvmlError: They cannot be listed at all.
    """
    found = []
    for index in range(ask(0, "nvmlDeviceGetMaxMigDeviceCount", gpu)):
        try:
            handle = call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
        except NvmlError as error:
            if error.code in api.MISSING:
                continue
            raise
        mig = _mig(handle, index, total)
        found.append(replace(mig, placement=_placement(gpu, mig.gpu_instance)))
    return tuple(found)


def _placement(gpu: Handle, gpu_instance: int) -> tuple[int, int] | None:
    """Return the first memory slice of a GPU instance and how many it has; None if unknown.

    A driver may tell only those who may change MIG devices, which this plugin need not.
    """
    try:
        instance = call("nvmlDeviceGetGpuInstanceById", gpu, gpu_instance)
        found = call("nvmlGpuInstanceGetInfo", instance).placement
    except NvmlError as error:
        if error.code in api.REFUSED:
            return None
        raise
    return int(found.start), int(found.size)


def _mig(handle: Handle, index: int, total: int) -> Mig:
    attributes = ask(None, "nvmlDeviceGetAttributes_v2", handle)
    name = _PROFILE.search(ask("", "nvmlDeviceGetName", handle))
    mig = Mig(
        uuid=call("nvmlDeviceGetUUID", handle),
        index=index,
        gpu_instance=call("nvmlDeviceGetGpuInstanceId", handle),
        compute_instance=call("nvmlDeviceGetComputeInstanceId", handle),
        profile=name[1].lower() if name else _computed_profile(attributes, total),
    )
    return mig if attributes is None else _with_attributes(mig, attributes)


def _with_attributes(mig: Mig, attributes: Any) -> Mig:
    return Mig(
        uuid=mig.uuid,
        index=mig.index,
        gpu_instance=mig.gpu_instance,
        compute_instance=mig.compute_instance,
        profile=mig.profile,
        memory=int(attributes.memorySizeMB) * _MIB,
        slices=int(attributes.gpuInstanceSliceCount),
        compute_slices=int(attributes.computeInstanceSliceCount),
        multiprocessors=int(attributes.multiprocessorCount),
        engines={
            "copy": int(attributes.sharedCopyEngineCount),
            "decoder": int(attributes.sharedDecoderCount),
            "encoder": int(attributes.sharedEncoderCount),
            "jpeg": int(attributes.sharedJpegCount),
            "ofa": int(attributes.sharedOfaCount),
        },
    )


def _computed_profile(attributes: Any, total: int) -> str:
    """Return the profile's name computed from its size; empty if that is unknown."""
    if attributes is None or not total or not attributes.gpuInstanceSliceCount:
        return ""
    eighths = math.ceil(_EIGHTHS * attributes.memorySizeMB * _MIB / total)
    gigabytes = round(eighths / _EIGHTHS * math.ceil(total / _GIB))
    slices, compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    part = f"{compute}c." if compute < slices else ""
    return f"{part}{slices}g.{gigabytes}gb"
