"""What NVML says of one GPU: its fabric, its MIG devices, its wear, and its license.

Memory is repaired with spare rows, on GPUs of before compute capability 8.0 by retiring pages. Both
take effect at a reset, and both are used up one day. NVIDIA replaces a GPU when a row could not be
remapped; 64 pages can be retired.
"""

import ctypes
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from deviceplugin_gpu.nvml import api
from deviceplugin_gpu.nvml.api import Handle, NvmlError, ask, call
from deviceplugin_gpu.snapshot import Gpu, License, Mig

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
_BRANDS: Final = (
    *("", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan"),
    *("NvidiaVApps", "NvidiaVPC", "NvidiaVCS", "NvidiaVWS", "NvidiaCloudGaming"),
    *("QuadroRTX", "NvidiaRTX", "Nvidia", "GeForceRTX", "TitanRTX"),
)
"""By NVML's number, as NVIDIA's DRA driver names them."""
_ADDRESSING: Final = ("None", "HMM", "ATS")
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
    final: frozenset[int] = api.MISSING
    """Errors that are an answer too."""

    def ask(self, default: Any, function: str, *arguments: object) -> Any:
        """Return the result of ``function``, or ``default`` if it fails and the GPU is usable."""
        try:
            return call(function, self.handle, *arguments)
        except NvmlError as error:
            if error.code in api.UNUSABLE:
                raise
            if error.code not in self.final:
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


def mig_devices(asked: Questions, total: int, known: Mapping[str, Mig]) -> tuple[Mig, ...]:
    """Return the MIG devices of a GPU, which has ``total`` bytes. Invalid ones are skipped.

    What cannot be read of one, and its nodes do not depend on, is as ``known`` by its UUID.
    """
    found = []
    for index in range(ask(0, "nvmlDeviceGetMaxMigDeviceCount", asked.handle)):
        try:
            handle = call("nvmlDeviceGetMigDeviceHandleByIndex", asked.handle, index)
        except NvmlError as error:
            if error.code in api.MISSING:
                continue
            raise
        found.append(_mig(asked, handle, index, total, known))
    return tuple(found)


def _mig(gpu: Questions, handle: Handle, index: int, total: int, known: Mapping[str, Mig]) -> Mig:
    uuid = call("nvmlDeviceGetUUID", handle)
    mig = Mig(
        uuid=uuid,
        index=index,
        gpu_instance=call("nvmlDeviceGetGpuInstanceId", handle),
        compute_instance=call("nvmlDeviceGetComputeInstanceId", handle),
    )
    before, asked = known.get(uuid, mig), replace(gpu, handle=handle)
    attributes = asked.ask(None, "nvmlDeviceGetAttributes_v2")
    mig = _with_attributes(mig, attributes) if attributes else replace(before, index=index)
    instance = _instance(gpu, mig.gpu_instance)
    if instance:
        mig = replace(mig, placement=(int(instance.placement.start), int(instance.placement.size)))
    if name := _PROFILE.search(asked.ask("", "nvmlDeviceGetName")):
        return replace(mig, profile=name[1].lower())
    same = (mig.slices, mig.compute_slices, mig.memory)
    if before.profile and same == (before.slices, before.compute_slices, before.memory):
        return replace(mig, profile=before.profile)
    profile = _named_profile(gpu, mig, instance) or computed_profile(mig, total)
    return replace(mig, profile=profile)


def _instance(gpu: Questions, number: int) -> Any:
    """Return NVML's facts of a GPU instance; None if unknown.

    A driver may tell only those who may change MIG devices, which this plugin need not.
    """
    asked = replace(gpu, final=api.REFUSED)
    handle = asked.ask(None, "nvmlDeviceGetGpuInstanceById", number)
    return handle and replace(asked, handle=handle).ask(None, "nvmlGpuInstanceGetInfo")


def _named_profile(gpu: Questions, mig: Mig, instance: Any) -> str:
    """Return the name that the driver has for the profile of a GPU instance; empty if unknown.

    No size tells apart those with more media engines (``+me``) or for graphics (``+gfx``).
    """
    asked = replace(gpu, final=api.REFUSED)
    for number in range(api.PROFILES if instance else 0):
        found = asked.ask(None, "nvmlDeviceGetGpuInstanceProfileInfo", number)
        if found and found.id == instance.profileId:
            name = _PROFILE.search(text(found.name))
            return _part(mig) + name[1].lower() if name else ""
    return ""


def text(raw: Any) -> str:
    """Return a string of NVML, which older bindings give as bytes."""
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)


def _part(mig: Mig) -> str:
    return f"{mig.compute_slices}c." if mig.compute_slices < mig.slices else ""


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


def computed_profile(mig: Mig, total: int) -> str:
    """Return the profile's name computed from its size; empty if that is unknown."""
    if not total or not mig.slices:
        return ""
    eighths = math.ceil(_EIGHTHS * mig.memory / total)
    gigabytes = math.floor(eighths / _EIGHTHS * math.ceil(total / _GIB) + 0.5)  # half up
    return f"{_part(mig)}{mig.slices}g.{gigabytes}gb"


def constants(asked: Questions, known: Gpu) -> dict[str, Any]:
    """Return fields of a GPU that never change, so that only those not in ``known`` are asked."""
    return {
        "brand": known.brand or _named(_BRANDS, asked.ask(-1, "nvmlDeviceGetBrand")),
        "cores": known.cores or int(asked.ask(0, "nvmlDeviceGetNumGpuCores")),
        "addressing": known.addressing
        or _named(_ADDRESSING, asked.ask(-1, "nvmlDeviceGetAddressingMode")),
    }


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else ""


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


def license_of(asked: Questions, mode: int | None, known: License | None) -> License | None:
    """Return the license of a vGPU; ``known`` if the driver does not answer, None if it needs none.

    Several products can license a GPU. One is enough, and the longest counts.
    """
    if mode != api.VGPU:
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
