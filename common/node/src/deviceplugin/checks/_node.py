"""The node for checks: its paths are below one root, and tests can replace the rest."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from deviceplugin._config import loading
from deviceplugin._config.documents.places import Place
from deviceplugin._config.settings import Settings

S = TypeVar("S", bound=Settings)

_MAX_TEXT = 1 << 20
"""Most bytes that are read of a file of the kernel or the kubelet; a checkpoint has some kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node to check."""

    root: Path
    """The root of the node's file system: ``/`` on the node, otherwise its mount point."""
    settings: Settings
    """The settings of a plugin; their paths are those on the node."""
    plugins: frozenset[str] = frozenset()
    """Plugins whose devices must be here, by the names of their checks. Devices of other plugins
    may be missing."""
    config: Path | None = None
    """The plugin's configuration file, if it is not the default one."""
    section: Place | None = None
    """The plugin's part of ``config``, if several plugins share the file."""
    timeout: float = 2.0
    """Seconds to wait for an answer on a socket."""
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    statvfs: Callable[[Path], os.statvfs_result] = field(default=os.statvfs)

    @classmethod
    def at_root(cls, root: Path) -> Self:
        """Return the node at ``root`` with default settings."""
        return cls(root=root, settings=Settings())

    def own_settings(self, settings: type[S], file: Path) -> S:
        """Return a plugin's settings in ``file``: those of its section, if plugins share the file.

        Raises:
            ConfigError: All faults, a line each.
        """
        if self.section is None:
            return settings.of_file(file)
        return loading.load_section(settings, self.section)

    def at(self, path: Path | str) -> Path:
        """Return the local path of ``path`` on the node."""
        return self.root / str(path).lstrip("/")

    @property
    def plugin_dir(self) -> Path:
        """The kubelet's directory for plugins that register themselves."""
        return self.at(self.settings.plugin_dir)

    @property
    def registry_dir(self) -> Path:
        """The directory that the kubelet watches for plugins."""
        return self.at(self.settings.registry_dir)

    @property
    def pod_resources_socket(self) -> Path:
        """The socket of the pod resources API."""
        return self.at(self.settings.pod_resources_socket)

    def read(self, path: Path | str) -> str:
        """Return the content of ``path`` on the node, without white space at its ends.

        Raises:
            OSError: It cannot be read.
        """
        with self.at(path).open("rb") as file:
            return file.read(_MAX_TEXT).decode(errors="replace").strip()

    def peek(self, path: Path | str) -> str:
        """Return the same as ``read``, or an empty string if it cannot be read."""
        try:
            return self.read(path)
        except OSError:
            return ""

    def exists(self, pattern: str) -> bool:
        """Return whether anything on the node matches ``pattern``."""
        return next(self.matches(pattern), None) is not None

    def matches(self, pattern: str) -> Iterator[Path]:
        """Yield the paths on the node that match ``pattern``, including broken links."""
        yield from self.root.glob(pattern.lstrip("/"))

    def processes(self) -> Iterator[Path]:
        """Yield the directories of all visible processes."""
        yield from self.matches("proc/[0-9]*")
