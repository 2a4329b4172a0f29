"""The configuration files of containerd, CRI-O and Docker, read as these programs read them."""

import fnmatch
import json
import os
import posixpath
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from deviceplugin._config.documents.reading import content, within
from deviceplugin.checks._node import PATTERN

_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 256
_MOST_NAMES: Final = 20_000
"""Most names that patterns of imports are compared with."""
_OLD: Final = "io.containerd.grpc.v1.cri"
_NEW: Final = "io.containerd.cri.v1.runtime"
_OF_2: Final = 3
"""The first version of a configuration that only containerd 2 has."""
_WITHOUT_OLD: Final = 4
"""The first version in which the section of containerd 1 has no effect."""
_REGISTRIES: Final = "/etc/containers/registries.conf"
GIVES_DEVICES: Final = "device_ownership_from_security_context"
"""The key of containerd and CRI-O by which a container's user owns its device nodes."""

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """What a configuration says of runtimes and CDI."""

    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The program of each runtime, by the name of the runtime; empty if none is set."""
    default: str = ""
    """The runtime of pods without a runtimeClassName, if it is set."""
    cdi: bool | None = None
    """Whether CDI is enabled; None if that depends on the version of containerd."""
    cdi_dirs: tuple[str, ...] = ()
    """Where it looks for CDI specifications; empty for /etc/cdi and /var/run/cdi."""
    systemd: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Whether systemd manages the control groups of a runtime's containers, where known."""
    gives_devices: bool | None = None
    """Whether device nodes belong to the user and the group that a pod runs as; None if not set."""

    def over(self, other: "Section") -> "Section":
        """Return both, of which this one wins."""
        return Section(
            {**other.programs, **self.programs},
            self.default or other.default,
            other.cdi if self.cdi is None else self.cdi,
            self.cdi_dirs or other.cdi_dirs,
            {**other.systemd, **self.systemd},
            other.gives_devices if self.gives_devices is None else self.gives_devices,
        )


class Reader:
    """Reads files of the node at ``root``, and keeps which ones, and what is wrong with them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tried: dict[str, None] = {}
        self._names = 0
        self.files: list[Path] = []
        self.faults: list[str] = []
        """Files that cannot be read, with the reason."""

    def containerd(self, main: str, *, is_2: bool | None) -> Section:
        """Return what containerd has of its file ``main`` and of all that this imports.

        ``is_2`` is whether it is containerd 2, if that is known; otherwise the files say it.
        Containerd 1 replaces the section of a plugin by that of a later file; 2 merges them.
        """
        pending, newest = deque([main]), 0
        first: Table = {}
        second: Table = {}
        while pending:
            path = pending.popleft()
            document = None if path in self._tried else self._document(path)
            if document is None:
                continue
            given = document.get("version")
            version = given if isinstance(given, int) else 0
            if is_2 is not False and 0 < newest < version:
                lower = f"than {newest}, that of {main}: containerd 2.3 does not start"
                self.faults.append(f"{self.files[-1]}: version {version} is higher {lower}")
            newest = max(newest, version)
            own = _of_1(document, version)
            first = own or first
            second = _merged(second, _migrated(document, own if version < _WITHOUT_OLD else {}))
            by_folder = version >= _OF_2 if is_2 is None else is_2
            pending += self._imports(posixpath.dirname(path), document, by_folder=by_folder)
        is_new = newest >= _OF_2 if is_2 is None else is_2
        return of_cri(second if is_new else first, cdi=True if is_new else None)

    def crio(self, main: str, folder: str) -> Section:
        """Return what CRI-O has of its file ``main`` and of all files below ``folder``."""
        found: Table = {}
        paths = [one for one in (main, *self._below(folder)) if self.exists(one)]
        for document in map(self._document, paths):
            own = table(document, "crio", "runtime")
            runtimes = {**table(found, "runtimes"), **table(own, "runtimes")}
            found = {**found, **own, "runtimes": runtimes}
        return of_crio(found) if paths else Section()

    def search(self) -> tuple[str, ...]:
        """Return where CRI-O and podman look for an image whose name has no registry."""
        found: tuple[str, ...] = ()
        for path in (_REGISTRIES, *self.matches(f"{_REGISTRIES}.d/*.conf")):
            document = table(self._document(path) if self.exists(path) else None)
            if "unqualified-search-registries" in document:
                found = strings(document, "unqualified-search-registries")
        return found

    def docker(self, path: str) -> Section:
        """Return what Docker's file says."""
        document = self._document(path) if self.exists(path) else None
        runtimes = table(document, "runtimes")
        programs = {name: string(runtimes, name, "path") for name in runtimes}
        return Section(programs, string(document, "default-runtime"))

    def exists(self, path: str) -> bool:
        """Return whether the node has ``path``; also if it cannot be seen from here."""
        try:
            return os.path.lexists(within(self._root, path))
        except OSError:
            return True

    def matches(self, pattern: str) -> Sequence[str]:
        """Return the node's paths that match, as Go finds them; no part has a backslash."""
        found = ["/"]
        for part in PurePosixPath(pattern).parts[1:]:
            found = [
                posixpath.join(folder, name) for folder in found for name in self._in(folder, part)
            ]
        return found

    def unread(self, main: str) -> Iterator[Path]:
        """Yield ``main`` and files in folders beside it, such as conf.d, if they were not read.

        Those that say nothing of pods do not count.
        """
        other = Reader(self._root)
        found = [main] if self.exists(main) else []
        found += self.matches(f"{posixpath.dirname(main)}/*.d/*.toml")
        for path in [one for one in found[:_MOST_FILES] if one not in self._tried]:
            document = other._document(path)
            if document is None or {_OLD, _NEW, "cri"} & table(document, "plugins").keys():
                yield self._root / path.lstrip("/")

    def _in(self, folder: str, part: str) -> Sequence[str]:
        try:
            place = within(self._root, folder)
            if not PATTERN.search(part):
                return [part] if os.path.lexists(place / part) else []
            names = sorted(one.name for one in place.iterdir()) if place.is_dir() else []
        except OSError as error:
            self.faults.append(f"{self._root / folder.lstrip('/')}: {error.strerror}")
            return []
        self._names += len(names)
        if self._names > _MOST_NAMES:
            self.faults.append(f"{folder}: imports match more than {_MOST_NAMES} names")
            return []
        return fnmatch.filter(names, part.replace("[^", "[!"))

    def _below(self, folder: str) -> Iterator[str]:
        for path in self.matches(f"{folder}/*"):
            place = within(self._root, folder) / posixpath.basename(path)
            if os.path.isdir(place) and not place.is_symlink():  # noqa: PTH112 - never raises
                yield from self._below(path)
            else:
                yield path

    def _imports(self, folder: str, document: Table, *, by_folder: bool) -> Iterator[str]:
        """Yield what a file in ``folder`` imports.

        A pattern starts at ``folder`` in containerd 2, and at the working directory, ``/``, in 1.
        """
        for one in strings(document, "imports"):
            start = folder if by_folder or "*" not in one else "/"
            place = posixpath.normpath(posixpath.join(start, one))
            yield from self.matches(place) if "*" in place else [place]

    def _document(self, path: str) -> Table | None:
        """Return a file's content; None if it cannot be read, which is a fault."""
        shown = self._root / path.lstrip("/")
        if len(self._tried) == _MOST_FILES:
            self.faults.append(f"{shown}: is one of more than {_MOST_FILES} files")
        if len(self._tried) >= _MOST_FILES:
            return None
        self._tried[path] = None
        try:
            text = content(within(self._root, path), _MOST_BYTES).decode()
            found: object = (json if path.endswith(".json") else tomllib).loads(text)
        except OSError as error:
            self.faults.append(f"{shown}: {error.strerror}")
        except (ValueError, RecursionError) as error:
            self.faults.append(f"{shown}: {str(error).splitlines()[0]}")
        else:
            self.files.append(shown)
            return table(found)
        return None


def of_cri(cri: Table, *, cdi: bool | None) -> Section:
    """Return what the table of containerd's CRI plugin says; ``cdi`` is its default."""
    own = table(cri, "containerd")
    runtimes = table(own, "runtimes")
    given = boolean(cri, "enable_cdi")
    return Section(
        {name: string(runtimes, name, "options", "BinaryName") for name in runtimes},
        string(own, "default_runtime_name"),
        cdi if given is None else given,
        strings(cri, "cdi_spec_dirs"),
        {name: table(runtimes, name, "options").get("SystemdCgroup") is True for name in runtimes},
        boolean(cri, GIVES_DEVICES),
    )


def of_crio(own: Table) -> Section:
    """Return what the table ``crio.runtime`` of CRI-O says."""
    runtimes = table(own, "runtimes")
    by_systemd = bool(own.get("cgroup_manager", "systemd") == "systemd")
    return Section(
        {name: string(runtimes, name, "runtime_path") for name in runtimes},
        string(own, "default_runtime"),
        cdi=True,
        cdi_dirs=strings(own, "cdi_spec_dirs"),
        systemd=dict.fromkeys(runtimes, by_systemd),
        gives_devices=boolean(own, GIVES_DEVICES),
    )


def table(place: object, *names: str) -> Table:
    """Return a nested table; an empty one if it is missing."""
    for name in names:
        place = cast("Table", place).get(name) if isinstance(place, Mapping) else None
    return cast("Table", place) if isinstance(place, Mapping) else {}


def string(place: object, *names: str) -> str:
    """Return a nested string; an empty one if it is missing."""
    found: object = table(place, *names[:-1]).get(names[-1])
    return found if isinstance(found, str) else ""


def boolean(place: Table, name: str) -> bool | None:
    """Return a boolean; None if it is missing."""
    found: object = place.get(name)
    return found if isinstance(found, bool) else None


def strings(place: Table, name: str) -> tuple[str, ...]:
    """Return a list of strings; an empty one if it is missing."""
    found: Any = place.get(name)
    return tuple(map(str, cast("Sequence[object]", found))) if isinstance(found, list) else ()


def _of_1(document: Table, version: int) -> Table:
    """Return the section of the CRI plugin as containerd 1 has it; empty if there is none."""
    plugins = table(document, "plugins")
    return table(plugins, _OLD) or (table(plugins, "cri") if version <= 1 else {})


def _migrated(document: Table, old: Table) -> Table:
    """Return the section as containerd 2 has it: ``old``, that of containerd 1, counts less."""
    new = table(document, "plugins", _NEW)
    return {**old, **new, "containerd": {**table(old, "containerd"), **table(new, "containerd")}}


def _merged(old: object, new: object) -> Any:
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    earlier, later = cast("Table", old), cast("Table", new)
    both = {name: _merged(earlier[name], later[name]) for name in earlier.keys() & later.keys()}
    return {**earlier, **later, **both}
