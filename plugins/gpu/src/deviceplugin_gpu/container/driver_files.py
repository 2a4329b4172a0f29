"""The files of the driver that a container needs: libraries, programs, firmware, sockets.

Without NVIDIA's toolkit, nothing else mounts them. They are found below the driver's root by the
driver's version, and mounted where the dynamic linkers of images search without a cache or a
variable: ``/usr/lib/<machine>-linux-gnu`` on Debian and its derivatives, ``/usr/lib64`` on Red Hat
and SUSE. Each library is mounted under the name that programs ask for (its SONAME), so that no link
is needed inside. ``LD_LIBRARY_PATH`` is not set, because the image may need its own.
``/etc/ld.so.cache`` is not touched, because only a hook could rebuild it.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import files
from deviceplugin.kit.cdi import Edits
from deviceplugin.kit.health import absence
from deviceplugin_gpu import host
from deviceplugin_gpu.container import elf
from deviceplugin_gpu.nvml.library import DIRECTORIES, UPGRADED

CUDA: Final = "libcuda.so.1"
_PROGRAMS_IN: Final = (
    *("usr/bin", "usr/sbin", "bin", "sbin", "usr/lib/nvidia/current"),
    *("usr/libexec/nvidia/tesla/bin", "run/opengl-driver/bin", "usr/local/bin"),
    *("run/current-system/sw/bin", "usr/local/nvidia/bin"),
)
_PROGRAMS: Final = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"),
    *("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
)
_OTHER_NAMES: Final = {
    CUDA: ["libcuda.so"],
    "libnvidia-opticalflow.so.1": ["libnvidia-opticalflow.so"],
    "libGLX_nvidia.so.0": ["libGLX_indirect.so.0"],
}
"""Names that programs ask for besides the SONAME."""
_WITHOUT_VERSION: Final = ("libnvidia-nvvm70.so.*", "libnvidia-egl-*.so.*")
"""Libraries of the driver whose names do not have its version."""
_IN_ETC: Final = ("etc/OpenCL/vendors/nvidia.icd",)
_IN_SHARE: Final = (
    *("vulkan/icd.d/nvidia_icd.json", "vulkan/icd.d/nvidia_icd.{machine}.json"),
    *("vulkan/icd.d/nvidia_layers.json", "vulkan/implicit_layer.d/nvidia_layers.json"),
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
)
"""In ``/etc`` or ``/usr/share``, depending on the distribution."""
_SOCKETS: Final = (
    "run/nvidia-persistenced/socket",
    "run/nvidia-fabricmanager/socket",
    "tmp/nvidia-mps",
)
_FIRMWARE: Final = ("lib/firmware/nvidia", "usr/lib/firmware/nvidia")
_WSL: Final = "usr/lib/wsl/lib"
_WSL_STORES: Final = "usr/lib/wsl/drivers/nv*"
"""Drivers of Windows. Libraries in ``_WSL`` load those of the one that runs by their full path."""
_VERSION: Final = re.compile(r"libcuda\.so\.(\d{3,}(?:\.\d+)+)", re.ASCII)
_OWN: Final = "libnvidia-"
"""How the names of the driver's libraries begin that others of it need."""
_ADVICE: Final = "mount the root of the driver that runs, or run nvidia-ctk cdi generate"
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of one version of the driver."""

    edits: Edits = field(default_factory=Edits)
    libraries: frozenset[str] = frozenset()
    """Names under which programs in a container find them."""
    directories: tuple[str, ...] = ()
    """Where they are in a container."""
    problem: str = ""
    """Why a CUDA program cannot run with these files, and what to do; empty if it can."""


class DriverFiles:
    """Finds the driver's files. A library that has not changed is not read again."""

    def __init__(self, root: Path, host_root: Path, machine: str = os.uname().machine) -> None:
        """``root`` is the driver's root as this process sees it, ``host_root`` on the host."""
        self._root, self._host_root, self._machine = root, host_root, machine
        self._read: dict[Path, tuple[_Stamp, elf.SharedLibrary | None]] = {}

    def find(self, version: str) -> VersionFiles:
        """Return the files of ``version``, such as ``580.95.05``; none if it is empty."""
        if not version:
            why = "the driver does not tell its version, by which its libraries are found"
            return VersionFiles(problem=f"{why}: {_ADVICE}")
        libraries = self._libraries(DIRECTORIES, (f"lib*.so.{version}", *_WITHOUT_VERSION))
        others = [*self._programs(_PROGRAMS_IN), *self._others(version)]
        return self._found(libraries, others, self._problem(version, libraries))

    def of_wsl(self) -> VersionFiles:
        """Return the files of the Windows Subsystem for Linux: libraries, and Windows' drivers."""
        libraries = self._libraries([_WSL], ["lib*.so*"])
        stores = [one for one in sorted(self._root.glob(_WSL_STORES)) if any(one.glob("libcuda*"))]
        places = [str(one.relative_to(self._root)) for one in stores]
        others = [
            self._mount(source, f"/{place}")
            for place in (_WSL, *places)
            if (source := self._real(self._root / place))
        ]
        missing = "" if CUDA in libraries else f"{CUDA} is not in {self._root / _WSL}"
        missing = missing or ("" if places else f"no {self._root / _WSL_STORES} has libcuda")
        why = missing and f"{missing}: {_ADVICE}"
        return self._found(libraries, [*others, *self._programs([_WSL])], why)

    def lacks(self, path: str) -> bool:
        """Return whether a file of the host would be visible here, and is gone."""
        if not PurePosixPath(path).is_relative_to(self._host_root):
            return False
        here = self._root / PurePosixPath(path).relative_to(self._host_root)
        folder = self._real(here.parent)
        try:
            return folder is not None and here.name not in os.listdir(self._root / folder)  # noqa: PTH208
        except OSError:
            return False

    def _found(
        self, libraries: dict[str, str], others: Iterable[dp.Mount], why: str
    ) -> VersionFiles:
        directories = ("/usr/lib64", f"/usr/lib/{self._machine}-linux-gnu")
        mounts = [
            self._mount(source, f"{directory}/{name}")
            for name, source in sorted(libraries.items())
            for directory in directories
        ]
        return VersionFiles(
            Edits(mounts=[*mounts, *others]), frozenset(libraries), directories, why
        )

    def _problem(self, version: str, libraries: dict[str, str]) -> str:
        if CUDA not in libraries:
            names = (path.name for path in self._matches(DIRECTORIES, "libcuda.so.*"))
            others = sorted({one[1] for one in map(_VERSION.fullmatch, names) if one}, key=_order)
            only = f", only that of {', '.join(others)}" if others else ""
            is_newer = bool(others) and _order(others[-1]) > _order(version)
            advice = UPGRADED if is_newer else _ADVICE
            return f"{CUDA} of driver {version} is not below {self._root}{only}: {advice}"
        _, cuda = self._read[self._root / libraries[CUDA]]
        needed = [one for one in (cuda.needed if cuda else ()) if one.startswith(_OWN)]
        missing = [one for one in needed if one not in libraries]
        if missing:
            gone = ", ".join(missing)
            return f"{CUDA} needs {gone}, not below {self._root}: install the whole driver"
        return ""

    def _libraries(self, folders: Sequence[str], patterns: Iterable[str]) -> dict[str, str]:
        """Return libraries by each of their names in a container."""
        found: dict[str, str] = {}
        read = {}
        for path in (one for name in patterns for one in self._matches(folders, name)):
            source = self._real(path)
            if source is None:
                continue
            entry = self._library(self._root / source)
            read[self._root / source] = entry
            library = entry[1]
            if library is None or library.machine != self._machine:
                continue
            name = path.name if files.name_problem(library.soname) else library.soname
            for one in (name, *_OTHER_NAMES.get(name, ())):
                found.setdefault(one, source)
        self._read = read
        return found

    def _library(self, path: Path) -> tuple[_Stamp, elf.SharedLibrary | None]:
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            before = self._read.get(path)
            return before if before and before[0] == stamp else (stamp, elf.read(path))
        except OSError:  # it is being replaced, or is unreadable: read again next time
            return (0, 0, 0), None

    def _programs(self, folders: Sequence[str]) -> Iterator[dp.Mount]:
        for program in _PROGRAMS:
            path = next(self._matches(folders, program), None)
            if path and (source := self._real(path)):
                yield self._mount(source, f"/usr/bin/{program}")

    def _others(self, version: str) -> Iterator[dp.Mount]:
        shared = [name.format(machine=self._machine) for name in _IN_SHARE]
        settings = [f"{base}/{name}" for base in ("etc", "usr/share") for name in shared]
        for place in (*_IN_ETC, *settings, *_SOCKETS):
            if source := self._real(self._root / place):
                yield self._mount(source, f"/{place}")
        firmware = {
            path.name: path
            for path in self._matches([f"{one}/{version}" for one in _FIRMWARE], "gsp*.bin")
        }
        for name, path in sorted(firmware.items()):
            if source := self._real(path):
                yield self._mount(source, f"/lib/firmware/nvidia/{version}/{name}")

    def _matches(self, directories: Iterable[str], name: str) -> Iterator[Path]:
        for pattern in directories:
            for directory in host.folders(self._root, pattern):
                yield from host.matches(directory, name)

    def _real(self, path: Path) -> str | None:
        """Return what a path below the root resolves to, without the root; None if to nothing."""
        source = host.resolve(self._root, str(path.relative_to(self._root)))
        return source if source and not absence(self._root / source) else None

    def _mount(self, source: str, target: str) -> dp.Mount:
        return dp.Mount(str(self._host_root / source), target, read_only=True)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
