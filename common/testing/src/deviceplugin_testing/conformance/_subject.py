"""The plugin to check, and the directories for it."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin_testing.conformance._place import Place, make_devices, scratch
from deviceplugin_testing.simulator import NEWEST

_LONGEST_ROOT: Final = 50
"""Most bytes in the path of a kubelet's directory: sockets below have long names."""
_OWN: Final = ("devices_dir", "http_address", "kubelet_dir", "plugin_dir")
"""Placeholders by which the trigger can name one start of the plugin."""
_FILES: Final = 8
"""Number of files in ``{devices_dir}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A plugin's command, and the user's options for it.

    Each start replaces the placeholders ``{plugin_dir}``, ``{pod_resources_socket}``,
    ``{registry_dir}``, ``{http_address}``, ``{kubelet_dir}`` and ``{devices_dir}``, which is a
    directory with a few files.
    """

    command: Sequence[str]
    resource: str = ""
    """Resource to check; by default the first by name."""
    trigger: str = ""
    """Shell command that changes the devices."""
    kubelet_dir: Path | None = None
    """Directory of the kubelet; by default a new one for each start."""
    kubelet_version: str = NEWEST
    """The release of Kubernetes whose kubelet is simulated."""

    @property
    def trigger_is_shared(self) -> bool:
        """Whether the trigger has no placeholder of one start, so it may change all plugins."""
        return bool(self.trigger) and not any(f"{{{name}}}" in self.trigger for name in _OWN)

    def check(self) -> None:
        """Check that ``kubelet_dir`` can be used and is not a real kubelet's.

        Raises:
            ConfigError: It has files of a kubelet, cannot be created, or has too long a path.
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
                raise ConfigError(f"{path}: not empty; do not use the directory of a real kubelet")

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Yield the directories of one start, and remove them, or their content, at the end."""
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
