"""The directories of one start of a plugin, and the placeholders for them in its command."""

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
