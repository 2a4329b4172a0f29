"""The kubelet's checkpoint: which devices it has recorded for which containers."""

import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from deviceplugin._platform.checkpoint import FILE_NAME, decode
from deviceplugin.kit.log import Problems
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

MAX_BYTES: Final = 8 * 1024**2
"""Some kB are usual; the checksum of a MiB takes a tenth of a second."""


class Entry(NamedTuple):
    """One device that the kubelet has recorded for one container."""

    pod: str
    """Its uid; the checkpoint has no names of pods."""
    container: str
    resource: str
    device: str
    answer: bytes = b""
    """What the container got with its devices of the resource, as on the wire."""

    @property
    def paths(self) -> Collection[str]:
        """The device nodes on the host that the container got; empty if that cannot be read."""
        try:
            answer = pb.ContainerAllocateResponse.FromString(self.answer)
        except DecodeError:
            return ()
        return [node.host_path for node in answer.devices]


class Recorded(NamedTuple):
    """What the kubelet has recorded."""

    entries: Collection[Entry]
    registered: Collection[str]
    """The resources that are registered, or were in its last five minutes."""


class Checkpoint:
    """The checkpoint in ``directory``, which is the plugin directory. For one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._known: tuple[object, Recorded | None] | None = None
        self._problems = Problems(log)

    def entries(self) -> Collection[Entry]:
        """Return which devices are recorded; none if that is not known."""
        recorded = self.recorded()
        return () if recorded is None else recorded.entries

    def recorded(self) -> Recorded | None:
        """Return what is recorded; None if that is not known.

        It is not known if there is no file, as where the directory is not mounted, if it cannot be
        read, or if its checksum is wrong. A file that has not changed is not read again.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                # The kubelet writes it under another name, so an open file never changes.
                version = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
                if self._known is None or self._known[0] != version:
                    self._known = version, self._read(file.read(MAX_BYTES + 1))
        except OSError:  # it is not there yet, or may not be read
            self._known = None
            return None
        return self._known[1]

    @property
    def is_known(self) -> bool:
        """Whether the last `entries` were all that is recorded."""
        return self._known is not None and self._known[1] is not None

    def _read(self, text: bytes) -> Recorded | None:
        try:
            recorded = _decoded(text)
        except ValueError as error:
            fields: dict[str, Any] = {"file": str(self._path), "error": str(error)}
            self._problems.say("checkpoint", "kubelet checkpoint ignored", **fields)
            return None
        self._problems.over("checkpoint")
        return recorded


def _decoded(text: bytes) -> Recorded:
    """Return what the checkpoint ``text`` has; raise ValueError if it is not a valid one."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"is longer than {MAX_BYTES} bytes")
    found = decode(text)
    entries = [
        Entry(one.pod, one.container, one.resource, device, one.response)
        for one in found.entries
        for ids in one.devices.values()
        for device in ids
    ]
    return Recorded(entries, found.registered)
