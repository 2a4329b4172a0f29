"""The NVLink fabric that a GPU is part of: which cluster, and which clique of it."""

import ctypes
from typing import Any, Final
from uuid import UUID

from deviceplugin_gpu.nvml.api import Handle, NvmlError, call

_COMPLETED: Final = 3
_VERSION: Final = 2
_UUID_BYTES: Final = 16
_FIELDS: Final[list[tuple[str, Any]]] = [
    ("cluster", ctypes.c_uint8 * _UUID_BYTES),
    ("status", ctypes.c_uint),
    ("clique", ctypes.c_uint32),
    ("state", ctypes.c_uint8),
]


class _First(ctypes.Structure):
    _fields_ = _FIELDS


class _Second(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), *_FIELDS, ("health", ctypes.c_uint32)]


def fabric(gpu: Handle) -> str:
    """Return cluster and clique as ``<UUID>.<number>``; empty if it is in none, or not yet."""
    second = _Second(version=ctypes.sizeof(_Second) | _VERSION << 24)
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
