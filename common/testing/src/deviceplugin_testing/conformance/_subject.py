"""The plugin to check: its command, its time limits, and the directories of one start."""

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin_testing.simulator import COMPARED


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and counts of a run. Times are in seconds."""

    start: float = 10.0
    """From the start of the process to its registration."""
    within: float = 10.0
    """For later reactions of the plugin: to register again, to list a change."""
    republished: float = 75.0
    """For slices that somebody has deleted to be published again. A driver by the library of
    Kubernetes waits 30 s, and until a minute after it wrote them itself."""
    call: float = 1.0
    """For Allocate and the other short calls, because the node waits meanwhile."""
    first_list: float = 2.0
    """From the opening of a stream to its first list."""
    hello: float = 1.0
    """For a socket to answer with the HTTP/2 preface, at the time of Register."""
    pre_start: float = 30.0
    """For PreStartContainer: the kubelet's own limit."""
    stop: float = 5.0
    """From SIGTERM to the end of the process."""
    quiet: float = 10.0
    """For which an undisturbed plugin is observed."""
    settle: float = 1.0
    """For which it is left alone before that. What is left over after this time is a leak."""
    look: float = 2.0
    """Of one observation, until the plugin is idle again after a loss."""
    calm: float = 10.0
    """From the recovery after a loss until the plugin must be idle again."""
    down: float = 3.0
    """For which the kubelet stays down when it is down for long."""
    streams: int = 8
    """Streams opened at the same time."""
    devices: int = 32
    """Most devices that are allocated one by one."""
    restarts: int = 5
    """Restarts at random moments."""
    leak_restarts: int = 50
    """Restarts after which nothing may have grown."""
    idle_cpu: float = 0.02
    """Share of one CPU while nothing happens, whatever happened before."""
    wakeups: float = 50.0
    """Wake-ups of all threads per second while nothing happens."""
    growth: int = 8 * 1024 * 1024
    """Bytes by which the process may grow over ``leak_restarts``, besides a tenth of its size."""


QUICK: Final = Limits(
    quiet=2.5, settle=0.5, look=1.0, calm=5.0, down=1.0, restarts=3, leak_restarts=8
)
"""Finds the same faults except for slow ones."""


_LONGEST_TEMPORARY: Final = 24
"""Most bytes in the path of the directory for temporary files: sockets below have long names."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of one start."""

    root: Path
    """The kubelet's directory."""
    scratch: Path
    """The directory for everything else."""

    def placeholders(self) -> Mapping[str, str]:
        """Return the values of the names in braces. The TCP port is a new one each time."""
        return {
            "plugin_dir": str(self.root / "device-plugins"),
            "pod_resources_socket": str(self.root / "pod-resources" / "kubelet.sock"),
            "registry_dir": str(self.root / "plugins_registry"),
            "http_address": f"127.0.0.1:{free_port()}",
            "kubelet_dir": str(self.root),
            "devices_dir": str(self.scratch / "devices"),
            "state_file": str(self.scratch / "state"),
        }


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """Yield a new directory with a path short enough for sockets below; delete it at the end."""
    parent = tempfile.gettempdir()
    parent = parent if len(os.fsencode(parent)) <= _LONGEST_TEMPORARY else "/tmp"  # noqa: S108
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def make_devices(directory: Path, files: int) -> Path:
    """Create ``devices`` in ``directory`` with so many files, and return it."""
    devices = directory / "devices"
    devices.mkdir()
    for number in range(files):
        (devices / f"dev{number}").touch()
    return devices


def fill(text: str, placeholders: Mapping[str, str]) -> str:
    """Return ``text`` with each ``{name}`` of ``placeholders`` replaced; other braces stay."""
    for name, value in placeholders.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def free_port() -> int:
    """Return a TCP port that is free at the moment, and that the kernel gives to nobody by itself.

    One that it chose could belong to a connection of others before the plugin listens, or while it
    restarts.
    """
    while True:
        port = random.randrange(10_000, 32_768)  # noqa: S311 - the kernel's are higher by default
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


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
    kubelet_version: str = COMPARED
    """The release of Kubernetes whose kubelet is simulated."""
    needs_devices: bool = True
    """Whether it fails if it lists no healthy device."""

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
