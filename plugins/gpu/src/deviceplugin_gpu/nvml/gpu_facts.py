"""What NVML says of one GPU: its fabric, its MIG devices, its wear, and its license.

Memory is repaired with spare rows, on GPUs of before compute capability 8.0 by retiring pages. Both
take effect at a reset, and both are used up one day. NVIDIA replaces a GPU when a row could not be
remapped; 64 pages can be retired.
"""

import ctypes
import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from deviceplugin_gpu.nvml import api
from deviceplugin_gpu.nvml.api import Handle, NvmlError, ask, call
from deviceplugin_gpu.snapshot import License, Mig

_COMPLETED: Final = 3
_INFO_VERSION: Final = 2
_UUID_BYTES: Final = 16
_FIELDS: Final[list[tuple[str, Any]]] = [
    ("cluster", ctypes.c_uint8 * _UUID_BYTES),
    ("status", ctypes.c_uint),
    ("clique", ctypes.c_uint32),
    ("state", ctypes.c_uint8),
]
log = logging.getLogger(__name__)
_PROFILE: Final = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)", re.IGNORECASE)
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_EIGHTHS: Final = 8
"""Fractions in which the memory of a GPU is given to MIG devices."""
_MOST_PAGES: Final = 64
_MANY_PAGES: Final = 60
_CAUSES: Final = range(2)
"""Of retired pages: several corrected errors, or one that could not be corrected."""
_SLOWDOWNS: Final = {
    0x80: "its power supply asks for it",
    0x40: "it is too hot",
    0x8: "it is too hot, or draws too much power",
}
"""Reasons why the hardware itself at least halves the clock, the most telling first."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Queries about one GPU. Failed ones are added to ``unanswered``."""

    uuid: str
    handle: Handle
    unanswered: list[str]

    def ask(self, default: Any, function: str, *arguments: object) -> Any:
        """Return the result of ``function``, or ``default`` if it fails and the GPU is usable."""
        try:
            return call(function, self.handle, *arguments)
        except NvmlError as error:
            if error.code in api.UNUSABLE:
                raise
            if error.code not in api.MISSING:
                self.unanswered.append(f"GPU {self.uuid}: {error}")
            return default


class _First(ctypes.Structure):
    _fields_ = _FIELDS


class _Second(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), *_FIELDS, ("health", ctypes.c_uint32)]


def fabric(gpu: Handle) -> str:
    """Return cluster and clique as ``<UUID>.<number>``; empty if it is in none, or not yet."""
    second = _Second(version=ctypes.sizeof(_Second) | _INFO_VERSION << 24)
    for function, info in (
        ("nvmlDeviceGetGpuFabricInfoV", second),
        ("nvmlDeviceGetGpuFabricInfo", _First()),
    ):
        try:
            call(function, gpu, ctypes.byref(info))
        except NvmlError:
            continue
        cluster = UUID(bytes=bytes(info.cluster))
        is_in_one = info.state == _COMPLETED and not info.status and cluster.int
        return f"{cluster}.{info.clique}" if is_in_one else ""
    return ""


def mig_devices(gpu: Handle, total: int) -> tuple[Mig, ...]:
    """Return the MIG devices of ``gpu``, which has ``total`` bytes. Invalid ones are skipped."""
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
    return replace(
        mig,
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


def wear(asked: Questions, *, is_pending: bool) -> Iterator[str]:
    """Yield why a GPU will not work for long, or is to be reset soon.

    ``is_pending`` is whether a row waits to be remapped. What the driver does not say is not there.
    """
    if is_pending:
        yield "a memory row is remapped at the next reset"
    banks = asked.ask(None, "nvmlDeviceGetRowRemapperHistogram")
    if banks and banks.none:
        yield f"memory banks without spare rows: {banks.none}"
    if asked.ask(0, "nvmlDeviceGetRetiredPagesPendingStatus"):
        yield "a memory page is retired at the next reset"
    nothing: tuple[Any, ...] = ()
    pages = sum(len(asked.ask(nothing, "nvmlDeviceGetRetiredPages", cause)) for cause in _CAUSES)
    if pages >= _MANY_PAGES:
        yield f"{pages} memory pages of at most {_MOST_PAGES} are retired"


def slowdown(asked: Questions) -> str:
    """Return why the hardware runs a GPU slower now, which may pass by itself; empty if not."""
    bits = asked.ask(0, "nvmlDeviceGetCurrentClocksEventReasons")
    why = next((text for bit, text in _SLOWDOWNS.items() if bits & bit), "")
    return f"the hardware slows it down: {why}" if why else ""


def license_of(asked: Questions, known: License | None) -> License | None:
    """Return the license of a vGPU; ``known`` if the driver does not answer, None if it needs none.

    Several products can license a GPU. One is enough, and the longest counts.
    """
    mode = asked.ask(None, "nvmlDeviceGetVirtualizationMode")
    if mode != api.IN_VIRTUAL_MACHINE:
        return known if mode is None else None
    found = asked.ask(None, "nvmlDeviceGetGridLicensableFeatures")
    if found is None:
        return known
    if not found.isGridLicenseSupported:
        return None
    products = found.gridLicensableFeatures[: found.licensableFeaturesCount]
    ends = [_end(asked, one.licenseExpiry) for one in products if one.featureState]
    latest = max(ends, default=0.0)
    return License(bool(ends), latest if 0 < latest < math.inf else None)


def _end(asked: Questions, expiry: Any) -> float:
    """Return when a license ends, in Unix seconds; infinity if it does not, or nobody knows."""
    if expiry.status != api.VALID_EXPIRY:
        return math.inf
    fields = expiry.year, expiry.month, expiry.day, expiry.hour, expiry.min, expiry.sec
    try:
        return datetime(*fields, tzinfo=UTC).timestamp()
    except ValueError as error:
        asked.unanswered.append(f"GPU {asked.uuid}: the license's expiry {fields}: {error}")
        return math.inf
