"""Finding and loading the driver's library, and calling functions by the names that it has."""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.health import absence
from deviceplugin_gpu import host

SONAME: Final = "libnvidia-ml.so.1"
DIRECTORIES: Final = (
    "usr/lib64",
    "usr/lib/*-linux-gnu",
    "usr/lib/*-linux-gnu/nvidia/current",  # Debian, whose links lead over /etc
    "usr/lib64/nvidia",
    "usr/lib/nvidia/tesla",  # Bottlerocket
    "usr/lib",
    "lib64",
    "lib/*-linux-gnu",
    "lib",
    "run/opengl-driver/lib",  # NixOS
    "usr/local/glibc/usr/lib",  # Talos
    "usr/local/nvidia/lib64",  # GKE
)
"""Patterns of the directories below a driver's root that may have its libraries, NVML as CUDA."""

MISSING: Final = "no such file"
UPGRADED: Final = (
    "the driver was upgraded and the old one is still loaded: reboot, or reload its modules"
)
"""What it means that the libraries on the disk are newer than the module in the kernel."""

OLDER: Final[Mapping[str, tuple[str, ...]]] = {
    "nvmlInitWithFlags": ("nvmlInit_v2", "nvmlInit"),
    "nvmlSystemGetCudaDriverVersion_v2": ("nvmlSystemGetCudaDriverVersion",),
    "nvmlDeviceGetCount_v2": ("nvmlDeviceGetCount",),
    "nvmlDeviceGetHandleByIndex_v2": ("nvmlDeviceGetHandleByIndex",),
    "nvmlDeviceGetHandleByPciBusId_v2": ("nvmlDeviceGetHandleByPciBusId",),
    "nvmlDeviceGetPciInfo_v3": ("nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"),
    "nvmlDeviceGetAttributes_v2": ("nvmlDeviceGetAttributes",),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": ("nvmlDeviceGetNvLinkRemotePciInfo",),
    "nvmlDeviceGetCurrentClocksEventReasons": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    "nvmlEventSetWait_v2": ("nvmlEventSetWait",),
    **{
        f"nvmlDeviceGet{kind}RunningProcesses_v3": (f"nvmlDeviceGet{kind}RunningProcesses_v2",)
        for kind in ("Compute", "Graphics", "MPSCompute")
    },
}
"""Older functions that do the same, the latest first.

All take the same arguments, except the flags of the first. If they fill a structure, theirs is a
prefix of the new one, so the new one may be passed: the rest stays unset.
"""
_WITHOUT_ARGUMENTS: Final = frozenset(OLDER["nvmlInitWithFlags"])


def candidates(root: Path, folder: str) -> list[str]:
    """Return the files to load from a directory of ``DIRECTORIES`` below the driver's ``root``.

    A link to ``/x`` leads to ``x`` below ``root``, or where that does not exist, to ``/x``.
    """
    found = []
    for place in (path / SONAME for path in host.folders(root, folder)):
        below = host.resolve(root, str(place.relative_to(root)))
        there = (root / below if below else place, place)
        found += [os.path.realpath(path) for path in there if not absence(path)][:1]
    return found


class Library:
    """The library that this process has loaded: from below ``root``, or as the linker finds it.

    It is loaded by its full path and globally (``RTLD_GLOBAL``), so that opening it by its bare
    name returns the same library.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.attempts: dict[str, str] = {}
        """The outcome of the last ``load`` by place; empty if it was loaded."""
        self.path = ""
        """The loaded file, links resolved, or its bare name if the linker chose; empty if none."""

    def load(self) -> ctypes.CDLL | None:
        """Return the library to use; None if there is none, or if it is loaded already.

        After an upgrade of the driver, the new one is loaded beside the old one.
        """
        self.attempts = {}
        for place in self._places():
            if place == self.path:
                return None
            try:
                library = ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                self.attempts[place] = str(error)
                continue
            self.attempts[place] = ""
            self.path = place
            return library
        return None

    def _places(self) -> Iterator[str]:
        for folder in DIRECTORIES:
            found = candidates(self.root, folder)
            if not found:
                self.attempts[str(self.root / folder / SONAME)] = MISSING
            yield from found
        yield SONAME


def names_of(function: str) -> tuple[str, ...]:
    """Return all names of ``function``, the newest first."""
    return (function, *OLDER.get(function, ()))


class Versions:
    """An NVML library that has each function by the newest name, which pynvml asks for."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, function: str) -> Callable[..., Any]:
        for name in names_of(function):
            try:
                found: Callable[..., Any] = getattr(self._library, name)
            except AttributeError:
                continue
            return (lambda *_, call=found: call()) if name in _WITHOUT_ARGUMENTS else found
        raise AttributeError(function)
