"""Functions of NVML, by the names that older drivers and older releases of pynvml have for them."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Final

OLDER: Final[Mapping[str, tuple[str, ...]]] = {
    "nvmlInitWithFlags": ("nvmlInit_v2", "nvmlInit"),
    "nvmlSystemGetCudaDriverVersion_v2": ("nvmlSystemGetCudaDriverVersion",),
    "nvmlDeviceGetCount_v2": ("nvmlDeviceGetCount",),
    "nvmlDeviceGetHandleByIndex_v2": ("nvmlDeviceGetHandleByIndex",),
    "nvmlDeviceGetPciInfo_v3": ("nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"),
    "nvmlDeviceGetAttributes_v2": ("nvmlDeviceGetAttributes",),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": ("nvmlDeviceGetNvLinkRemotePciInfo",),
    "nvmlDeviceGetCurrentClocksEventReasons": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    "nvmlEventSetWait_v2": ("nvmlEventSetWait",),
}
"""Older functions that do the same, the latest first.

All take the same arguments, except the flags of the first. If they fill a structure, theirs is a
prefix of the new one, so the new one may be passed: the rest stays unset.
"""
_WITHOUT_ARGUMENTS: Final = frozenset(OLDER["nvmlInitWithFlags"])


def names(function: str) -> tuple[str, ...]:
    """Return all names of ``function``, the newest first."""
    return (function, *OLDER.get(function, ()))


class Versions:
    """An NVML library in which the newest name of a function returns its newest version.

    pynvml asks for one name of each function, which an older library may lack.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, function: str) -> Callable[..., Any]:
        for name in names(function):
            try:
                found: Callable[..., Any] = getattr(self._library, name)
            except AttributeError:
                continue
            return _without_arguments(found) if name in _WITHOUT_ARGUMENTS else found
        raise AttributeError(function)


def _without_arguments(function: Callable[[], Any]) -> Callable[..., Any]:
    return lambda *_: function()
