"""Which plugin is tried, and where."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.conformance._place import Place, make_devices, scratch
from deviceplugin.errors import ConfigError
from deviceplugin.simulator import NEWEST

_LONGEST_ROOT: Final = 50
"""Bytes of the path of a kubelet's directory: sockets below it have long names."""
_OWN: Final = ("devices_dir", "http_address", "kubelet_dir", "plugin_dir")
"""What the trigger can name of the start whose devices are to change."""
_FILES: Final = 8
"""Files in ``{devices_dir}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A plugin's command, and what the user says about it.

    ``{plugin_dir}``, ``{pod_resources_socket}``, ``{registry_dir}``, ``{http_address}``,
    ``{kubelet_dir}`` and ``{devices_dir}``, a directory with a few files, stand for what each
    start is given.
    """

    command: Sequence[str]
    resource: str = ""
    """Resource to check; the first by name where not given."""
    trigger: str = ""
    """Shell command that changes the devices."""
    kubelet_dir: Path | None = None
    """Directory of the kubelet; one of its own for each start where not given."""
    kubelet_version: str = NEWEST
    """The release of Kubernetes whose kubelet it is tried on."""

    @property
    def trigger_is_shared(self) -> bool:
        """Whether the trigger names nothing of one start's own, and so may change all plugins."""
        return bool(self.trigger) and not any(f"{{{name}}}" in self.trigger for name in _OWN)

    def check(self) -> None:
        """Make sure that ``kubelet_dir`` can be used and is nobody else's.

        Raises:
            ConfigError: There is something in it that a kubelet would have put there; or it
                cannot be made, or has too long a name.
        """
        if self.kubelet_dir is None:
            return
        if len(os.fsencode(self.kubelet_dir)) > _LONGEST_ROOT:
            raise ConfigError(f"{self.kubelet_dir}: too long for the paths of sockets below it")
        for path in _owned(self.kubelet_dir):
            try:
                path.mkdir(parents=True, exist_ok=True)
                used = any(path.iterdir())
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from error
            if used:
                raise ConfigError(
                    f"{path}: not empty; a kubelet's directory is not to be played with"
                )

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Make directories for one start, and remove them, or what is in them, at the end."""
        with scratch("dpc-") as directory:
            make_devices(directory, _FILES)
            try:
                yield Place(self.kubelet_dir or directory, directory)
            finally:
                if self.kubelet_dir is not None:
                    _empty(self.kubelet_dir)


def _owned(root: Path) -> list[Path]:
    return [root / name for name in ("device-plugins", "pod-resources", "plugins_registry")]


def _empty(root: Path) -> None:
    for directory in _owned(root):
        if directory.is_dir():
            for path in directory.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
