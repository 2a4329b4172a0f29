"""Where a plugin is started: directories of its own, and what stands for them in its command."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LONGEST_TEMPORARY: Final = 24
"""Bytes of the path of the directory for temporary ones: sockets below it have long names."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of one start."""

    root: Path
    """The kubelet's."""
    scratch: Path
    """For the rest."""

    def placeholders(self) -> Mapping[str, str]:
        """Return what stands for the names in braces. The TCP port is a new one each time."""
        return {
            "plugin_dir": str(self.root / "device-plugins"),
            "pod_resources_socket": str(self.root / "pod-resources" / "kubelet.sock"),
            "registry_dir": str(self.root / "plugins_registry"),
            "http_address": f"127.0.0.1:{_free_port()}",
            "kubelet_dir": str(self.root),
            "devices_dir": str(self.scratch / "devices"),
        }


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """Make a directory whose path is short enough for sockets below it; delete it at the end."""
    parent = tempfile.gettempdir()
    parent = parent if len(os.fsencode(parent)) <= _LONGEST_TEMPORARY else "/tmp"  # noqa: S108
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def make_devices(directory: Path, files: int) -> Path:
    """Make ``devices`` in ``directory``, with so many files in it, and return it."""
    devices = directory / "devices"
    devices.mkdir()
    for number in range(files):
        (devices / f"dev{number}").touch()
    return devices


def fill(text: str, placeholders: Mapping[str, str]) -> str:
    """Replace each ``{name}`` of ``placeholders``; other braces stay."""
    for name, value in placeholders.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _free_port() -> int:
    """Return a TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
