"""The node as the checks see it: all paths below one root, and what else a test replaces."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from deviceplugin._config.settings import Settings

_MAX_TEXT = 1 << 20
"""Bytes that are read of a file of the kernel or the kubelet; a checkpoint is some kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where things are on the node that is looked at."""

    root: Path
    """Where the node's file system is: ``/`` on the node, else where it is mounted."""
    settings: Settings
    """As a plugin would have them; their paths are the node's."""
    plugins: frozenset[str] = frozenset()
    """Plugins whose devices should be here, by the names of their checks. Of others it is only said
    what is wrong with them."""
    config: Path | None = None
    """The plugin's configuration file, where it is not the usual one."""
    timeout: float = 2.0
    """Seconds that anybody on the other side of a socket has to answer."""
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    statvfs: Callable[[Path], os.statvfs_result] = field(default=os.statvfs)

    @classmethod
    def at_root(cls, root: Path) -> Self:
        """Return the node at ``root`` with all settings as they are by default."""
        return cls(root=root, settings=Settings())

    def at(self, path: Path | str) -> Path:
        """Return where ``path`` of the node is here."""
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
        """Return the text of ``path`` of the node, without the white space around it.

        Raises:
            OSError: It cannot be read.
        """
        with self.at(path).open("rb") as file:
            return file.read(_MAX_TEXT).decode(errors="replace").strip()

    def peek(self, path: Path | str) -> str:
        """Return the same; empty if it cannot be read."""
        try:
            return self.read(path)
        except OSError:
            return ""

    def exists(self, pattern: str) -> bool:
        """Whether anything on the node matches ``pattern``."""
        return next(self.matches(pattern), None) is not None

    def matches(self, pattern: str) -> Iterator[Path]:
        """Yield what on the node matches ``pattern``, broken links too."""
        yield from self.root.glob(pattern.lstrip("/"))

    def processes(self) -> Iterator[Path]:
        """Yield the directories of the processes that can be seen."""
        yield from self.matches("proc/[0-9]*")
