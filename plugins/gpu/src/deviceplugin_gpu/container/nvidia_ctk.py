"""The CDI specifications that NVIDIA's container toolkit has generated, if any.

Call ``Toolkit().find()`` at each discovery. ``match`` then returns the name of a GPU or MIG device
in them. They do not follow the driver. After an upgrade, or with another MIG layout, a name leads
to libraries that are gone, or to a partition that another pod holds. This module detects that.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from deviceplugin.kit import cdi
from deviceplugin.kit.cdi import Edits, Hook
from deviceplugin.kit.health import absence
from deviceplugin_gpu import host
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.snapshot import Gpu, Mig

log = logging.getLogger(__name__)

KIND: Final = "nvidia.com/gpu"
GENERATE: Final = "run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on the node"
_UUID: Final = ("GPU-", "MIG-")
_DRIVER: Final = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(?:(\d{3,}\.[0-9.]+)|\d+\.)")
"""A main library of the driver with its version; libcuda.so.1.1 of a Jetson has none."""
_NODES: Final = (
    re.compile(r"/dev/nvidia\d+"),
    re.compile(r"/dev/nvidia-caps/nvidia-cap\d+"),
)
"""Of one GPU, and of one MIG device."""
_Stamp = tuple[int, int]

_UPDATE_CACHE: Final = "update-ldcache"
_ALL: Final = "all"
_PROGRAMS: Final = (
    "/usr/bin/nvidia-cdi-hook",
    "/usr/bin/nvidia-ctk",
    "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
    "/usr/local/nvidia/toolkit/nvidia-ctk",
)


@dataclass(frozen=True, slots=True)
class File:
    """One specification."""

    path: Path
    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The device nodes of each GPU or MIG device in a container, by name without the kind."""
    libraries: tuple[str, ...] = ()
    """Paths on the host of the driver's main libraries that it mounts."""

    @property
    def drivers(self) -> frozenset[str]:
        """Versions of the driver whose libraries it mounts."""
        found = map(_DRIVER.search, self.libraries)
        return frozenset(one[1] for one in found if one and one[1])

    @property
    def has_uuids(self) -> bool:
        """Whether it names devices by UUID. Then an index is not used: it may be outdated."""
        return any(name.startswith(_UUID) for name in self.devices)

    def gone(self, lacks: Callable[[str], bool]) -> str:
        """Return why no container could start with it; empty if none of its files is lacking."""
        path = next(filter(lacks, self.libraries), "")
        return path and f"it mounts {path}, which is gone"

    def of_other_driver(self, driver: str) -> str:
        """Return why it is not for the version ``driver``; empty if it may be."""
        if not driver or not self.drivers or driver in self.drivers:
            return ""
        return f"it is for driver {', '.join(sorted(self.drivers))}, and {driver} runs"


@dataclass(frozen=True, slots=True)
class Match:
    """The name of a device, or why the specification that should have it is out of date."""

    name: str = ""
    """The qualified name; empty if none can be used."""
    stale: str = ""
    file: Path | None = None
    is_index: bool = False
    """Whether the name is an index, which can be another GPU after the next boot."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The content of the toolkit's specifications, as a runtime resolves it."""

    files: tuple[File, ...] = ()
    by_name: Mapping[str, File] = field(default_factory=dict)
    """The file from which a runtime takes each name."""

    def match(
        self, gpu: Gpu, mig: Mig | None = None, driver: str = "", nodes: Collection[str] = ()
    ) -> Match:
        """Return the name of a GPU or its MIG device: the UUID, or the index if none are used.

        ``nodes`` are paths of the device nodes that it needs in a container.
        """
        if gpu.is_integrated and not mig:
            return self._integrated(gpu)
        uuid = mig.uuid if mig else gpu.uuid
        index = f"{gpu.index}:{mig.index}" if mig else str(gpu.index)
        name = uuid if uuid in self.by_name else index
        by_uuid = (one for one in self.files if one.has_uuids)
        file = self.by_name.get(name) or next(by_uuid, None)
        if file is None:
            return Match()
        if file.has_uuids and name != uuid:
            stale = f"it does not have {uuid}"
        elif _differ(file.devices[name], frozenset(nodes)):
            given = ", ".join(sorted(file.devices[name]))
            stale = f"its device {name} has {given}, and {uuid} has others now"
        else:
            stale = file.of_other_driver(driver)
        if stale:
            return Match(stale=stale, file=file.path)
        return Match(f"{KIND}={name}", file=file.path, is_index=name != uuid)

    def _integrated(self, gpu: Gpu) -> Match:
        """Return the name of a Jetson's GPU: the index, which is 0 whatever else is plugged in.

        A specification with nothing but ``all`` has it too. Nothing shows that one is out of date:
        no library has the driver's version in its name, and no node is that of one GPU alone.
        """
        names = [str(gpu.index), gpu.uuid, *([_ALL] if self.by_name.keys() == {_ALL} else [])]
        name = next((one for one in names if one in self.by_name), "")
        return Match(f"{KIND}={name}", file=self.by_name[name].path) if name else Match()


def _differ(given: frozenset[str], needed: frozenset[str]) -> bool:
    """Return whether both list nodes, and different ones: it is then another device.

    After a boot without one GPU, the GPUs behind it have other numbers.
    """
    for pattern in _NODES:
        some, others = ({*filter(pattern.fullmatch, nodes)} for nodes in (given, needed))
        if some and others and some != others:
            return True
    return False


class Toolkit:
    """Finds generated specifications. One that has not changed is not read again."""

    def __init__(self, directories: Sequence[Path] = cdi.DIRECTORIES) -> None:
        self._directories = directories
        self._read: dict[Path, tuple[_Stamp, File]] = {}

    def find(self) -> Generated:
        """Return what exists now. A file that cannot be read is logged once and skipped."""
        read = {path: self._file(path) for path in self._paths()}
        self._read = {path: entry for path, entry in read.items() if entry is not None}
        files = tuple(file for _, file in self._read.values())
        by_name: dict[str, File] = {}
        for directory in self._directories:  # the last one wins
            own = [file for file in files if file.path.parent == directory]
            found = [(name, file) for file in own for name in file.devices]
            names = [name for name, _ in found]
            by_name |= dict(found)
            for name in {name for name in names if names.count(name) > 1}:
                del by_name[name]  # a runtime uses neither
        return Generated(tuple(file for file in files if file.devices), by_name)

    def _paths(self) -> Iterator[Path]:
        for directory in self._directories:
            for suffix in ("json", "yaml"):
                yield from host.matches(directory, f"nvidia*.{suffix}")

    def _file(self, path: Path) -> tuple[_Stamp, File] | None:
        with suppress(OSError):  # it is gone, or a broken link
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            before = self._read.get(path)
            if before is not None and before[0] == stamp:
                return before
            return stamp, _parse(path)
        return None


def _parse(path: Path) -> File:
    try:
        document = cdi.parse(path)
        if document["kind"] != KIND:
            return File(path)
        devices = {str(one["name"]): _edits(one) for one in document["devices"]}
        everything = [_edits(document), *devices.values()]
        mounts = [str(one["hostPath"]) for edits in everything for one in edits.get("mounts") or ()]
        return File(
            path,
            {name: _own_nodes(edits) for name, edits in devices.items()},
            tuple(path for path in mounts if _DRIVER.search(path)),
        )
    except (OSError, TypeError, LookupError, AttributeError, cdi.SpecError) as error:
        text = str(error) or type(error).__name__
        log.warning(
            "unreadable CDI specification skipped",
            extra={"file": str(path), "error": text.splitlines()[0]},
        )
        return File(path)


def _edits(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return document.get("containerEdits") or {}


def _own_nodes(edits: Mapping[str, Any]) -> frozenset[str]:
    paths = [str(node["path"]) for node in edits.get("deviceNodes") or ()]
    return frozenset(path for path in paths if any(one.fullmatch(path) for one in _NODES))


def hook_program(settings: GpuSettings) -> str:
    """Return the path of the hook program on the host; empty if none can be used.

    A configured path is used as it is. Otherwise the program must be visible, which is possible
    only if the driver's root is the host's.
    """
    if {_ALL, _UPDATE_CACHE} & {*settings.cdi_disable_hooks}:
        return ""
    if settings.nvidia_cdi_hook_path != GpuSettings().nvidia_cdi_hook_path:
        return str(settings.nvidia_cdi_hook_path)
    if settings.driver_root != Path("/"):
        return ""
    root = settings.driver_root_ctr_path
    return next((place for place in _PROGRAMS if not absence(root / place.lstrip("/"))), "")


def hook_edits(program: str, directories: Iterable[str]) -> Edits:
    """Return the hook by which ``program`` adds the libraries in ``directories`` to the cache."""
    if not program:
        return Edits()
    name = PurePosixPath(program).name
    words = [name, _UPDATE_CACHE] if name == "nvidia-cdi-hook" else [name, "hook", _UPDATE_CACHE]
    folders = [word for directory in directories for word in ("--folder", directory)]
    return Edits(hooks=[Hook("createContainer", program, (*words, *folders))])
