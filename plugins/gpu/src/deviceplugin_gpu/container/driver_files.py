"""The files of the driver that a container needs: libraries, programs, firmware, sockets.

Without NVIDIA's toolkit, nothing else mounts them. They are found below the driver's root by the
driver's version, and mounted where the dynamic linkers of images search without a cache or a
variable: ``/usr/lib/<machine>-linux-gnu`` on Debian and its derivatives, ``/usr/lib64`` on Red Hat
and SUSE. Each library is mounted under the name that programs ask for (its SONAME), so that no link
is needed inside. ``LD_LIBRARY_PATH`` is not set, because the image may need its own.
``/etc/ld.so.cache`` is not touched, because only a hook could rebuild it.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.cdi import Edits
from deviceplugin.kit.health import absence
from deviceplugin_gpu.host import elf, links

CUDA: Final = "libcuda.so.1"
LIBRARIES: Final = (
    "usr/lib64",
    "usr/lib/*-linux-gnu",
    "usr/lib/*-linux-gnu/nvidia/current",  # Debian
    "usr/lib64/nvidia",
    "usr/lib/nvidia/tesla",  # Bottlerocket
    "usr/lib",
    "lib64",
    "lib/*-linux-gnu",
    "lib",
    "run/opengl-driver/lib",  # NixOS
    "usr/local/glibc/usr/lib",  # Talos
    "usr/local/nvidia/lib64",
)
"""Patterns of the directories below a driver's root that may have libraries."""
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
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """The files of one version of the driver."""

    edits: Edits = field(default_factory=Edits)
    libraries: frozenset[str] = frozenset()
    """Names under which programs in a container find them."""
    directories: tuple[str, ...] = ()
    """Where they are in a container."""

    @property
    def has_cuda(self) -> bool:
        """Whether a CUDA program can run with these files."""
        return CUDA in self.libraries


class DriverFiles:
    """Finds the driver's files. A library that has not changed is not read again."""

    def __init__(self, root: Path, host_root: Path, machine: str = os.uname().machine) -> None:
        """``root`` is the driver's root as this process sees it, ``host_root`` on the host."""
        self._root, self._host_root, self._machine = root, host_root, machine
        self._read: dict[Path, tuple[_Stamp, elf.SharedLibrary | None]] = {}

    def find(self, version: str) -> Found:
        """Return the files of ``version``, such as ``580.95.05``; none if it is empty."""
        if not version:
            return Found()
        libraries = self._libraries(version)
        directories = ("/usr/lib64", f"/usr/lib/{self._machine}-linux-gnu")
        mounts = [
            self._mount(source, f"{directory}/{name}")
            for name, source in sorted(libraries.items())
            for directory in directories
        ]
        mounts += self._programs()
        mounts += self._others(version)
        return Found(Edits(mounts=mounts), frozenset(libraries), directories)

    def _libraries(self, version: str) -> dict[str, str]:
        """Return libraries by each of their names in a container."""
        found: dict[str, str] = {}
        read = {}
        patterns = (f"lib*.so.{version}", *_WITHOUT_VERSION)
        for path in (one for name in patterns for one in self._matches(LIBRARIES, name)):
            source = self._real(path)
            if source is None:
                continue
            entry = self._library(self._root / source)
            read[self._root / source] = entry
            library = entry[1]
            if library is None or library.machine != self._machine:
                continue
            name = library.soname or path.name
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

    def _programs(self) -> Iterator[dp.Mount]:
        for program in _PROGRAMS:
            path = next(self._matches(_PROGRAMS_IN, program), None)
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
            if "*" in pattern:
                places = links.matches(self._root, pattern)
            else:  # links on the way may lead elsewhere from here
                found = links.resolve(self._root, pattern)
                places = [self._root / found] if found else []
            for directory in places:
                yield from links.matches(directory, name)

    def _real(self, path: Path) -> str | None:
        """Return what a path below the root resolves to, without the root; None if to nothing."""
        source = links.resolve(self._root, str(path.relative_to(self._root)))
        return source if source and not absence(self._root / source) else None

    def _mount(self, source: str, target: str) -> dp.Mount:
        return dp.Mount(str(self._host_root / source), target, read_only=True)
