"""The kubelet's checkpoint, and which devices must be taken for held because of it.

PodResources lists no devices of ordinary init containers, and a kubelet that has just started lists
few pods. The kubelet's checkpoint has them all. But it may also have devices of pods that have
ended, until it is written the next time, and does not say which pods these are.
"""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from deviceplugin._attribution.podresources import Holdings, PodName
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._attribution.stale import Given
from deviceplugin._platform.boot import is_of_this_boot
from deviceplugin._platform.checkpoint import FILE_NAME, Entry, Recorded, decode
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.kit.log import Problems
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

MAX_BYTES: Final = 8 * 1024**2
"""Some kB are usual; the checksum of a MiB takes a tenth of a second."""


class Checkpoint:
    """The checkpoint in ``directory``, which is the plugin directory. For one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._known: tuple[tuple[int, ...], Recorded | None] | None = None
        self._problems = Problems(log)

    def entries(self) -> Collection[Entry]:
        """Return which devices are recorded; none if that is not known."""
        recorded = self.recorded()
        return () if recorded is None else recorded.entries

    def recorded(self) -> Recorded | None:
        """Return what is recorded, read again if the file has changed; None if that is not known.

        It is not known if there is no file, as where the directory is not mounted, if it cannot be
        read, or if its checksum is wrong.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                # The kubelet writes it under another name, so an open file never changes.
                version = status.st_mtime_ns, status.st_dev, status.st_ino, status.st_size
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

    @property
    def is_current(self) -> bool:
        """Whether it can be read now, and was written since this machine started.

        Before that, it may have been another machine's: disks are copied.
        """
        recorded, known = self.recorded(), self._known
        return recorded is not None and known is not None and is_of_this_boot(known[0][0])

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
    return decode(text)


def paths(response: bytes) -> Collection[str]:
    """Return the device nodes on the host in a ``response``; none if that cannot be read."""
    try:
        answer = pb.ContainerAllocateResponse.FromString(response)
    except DecodeError:
        return ()
    return [node.host_path for node in answer.devices]


@dataclass(slots=True, eq=False, repr=False)
class _Device:
    """What is known of a device since it was allocated."""

    allocated: int = 0
    """Which allocation of this process it was; 0 for one before its start."""
    earlier: frozenset[PodName] = frozenset()
    """The pods that had been there before."""
    containers: set[str] = field(default_factory=set)
    """The containers that were listed with it."""
    possible: frozenset[PodName] | None = None
    """The pods that may have it, of which none may be listed with it."""


class CheckpointHolds:
    """What ``checkpoint`` has of pods that may still be there. Thread-safe.

    A pod has ended if one of its containers was listed with a device, since that was allocated, and
    is not any more. If none ever was, it has ended when no pod is listed any more that was new in
    the first list after the allocation.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._problems = Problems(log)
        self._devices: defaultdict[Key, _Device] = defaultdict(_Device)
        self._allocations = 0
        self._known = 0
        """The last allocation before the last list was asked for."""

    def allocated(self, keys: Iterable[Key], earlier: frozenset[PodName]) -> None:
        """Record that ``keys`` were allocated for another pod than ``earlier``, by their names.

        A pod that has the name of one that may have a device, as in a StatefulSet, may get one too.
        """
        with self._lock:
            self._allocations += 1
            for device in self._devices.values():
                if device.possible and device.allocated and not device.containers:
                    earlier -= device.possible
            self._devices.update((key, _Device(self._allocations, earlier)) for key in keys)

    @property
    def moment(self) -> int:
        """The present, for ``listed``."""
        return self._allocations

    def listed(self, moment: int) -> None:
        """Record that all pods were listed, as asked for at ``moment``."""
        with self._lock:
            self._known = moment

    def given(self, key: Key) -> Given | None:
        """Return what a container got with the device ``key``, if that is recorded."""
        with self._lock:
            entries = self._checkpoint.entries()
        mine = next((one for one in entries if key in one.keys), None)
        if mine is None:
            return None
        same = (mine.pod, mine.container, mine.resource)
        together = [one for one in entries if (one.pod, one.container, one.resource) == same]
        keys = [each for one in together for each in one.keys]
        return Given(paths(mine.response), keys, mine.pod)

    def is_recorded(self, key: Key) -> bool:
        """Return whether the device ``key`` is recorded for any pod; False if that is not known."""
        with self._lock:
            return any(key in one.keys for one in self._checkpoint.entries())

    def is_free(self, ours: Collection[str]) -> bool:
        """Return whether nothing of the resources ``ours`` is recorded for any pod.

        That is certain, listed or not: a kubelet records a device before its container starts. It
        says nothing of resources that are not discovered yet, so without any it is False.
        """
        with self._lock:
            found = any(one.keys and one.resource in ours for one in self._checkpoint.entries())
            return bool(ours) and self._checkpoint.is_known and not found

    @property
    def is_current(self) -> bool:
        """As that of the checkpoint."""
        with self._lock:
            return self._checkpoint.is_current

    def instead(self, last: Holdings, error: KubeletUnavailableError) -> Holdings:
        """Return ``last``, the latest answer, for what is recorded besides to be added to it.

        Raise ``error``, with which the kubelet did not answer, if its checkpoint may be another's.
        """
        if not self.is_current:
            raise error
        text = str(error)
        self._problems.say("instead", "pod resources unavailable, checkpoint used", error=text)
        return replace(last, holds=last.holds or frozenset(), complete=False, answered=False)

    def added(self, holdings: Holdings, ours: Collection[str]) -> Holdings:
        """Return ``holdings`` with what is recorded of ``ours`` for pods that may be there."""
        if holdings.answered:
            self._problems.over("instead")
        # A kubelet without pods gives the same list as one that does not know its pods yet.
        is_empty = holdings.answered and holdings.holds is not None and not holdings.pods
        complete = holdings.complete or (is_empty and self.is_free(ours))
        return replace(holdings, recorded=self.held(holdings, ours), complete=complete)

    def remembers(self, resource: str) -> bool:
        """Return whether the kubelet has ``resource`` on record; False if that is not known."""
        with self._lock:
            recorded = self._checkpoint.recorded()
        return recorded is not None and resource in recorded.registered

    def held(self, holdings: Holdings, ours: Collection[str]) -> frozenset[Key]:
        """Return the devices of ``ours`` that pods may hold, going by the last ``holdings``."""
        now = {(hold.resource, hold.device, hold.container) for hold in holdings.holds or ()}
        complete = holdings.complete and holdings.holds is not None
        pods: defaultdict[str, list[Entry]] = defaultdict(list)
        with self._lock:
            for resource, device, container in now:
                if resource in ours:
                    self._devices[resource, device].containers.add(container)
            for entry in self._checkpoint.entries():
                if entry.resource in ours:
                    pods[entry.pod].append(entry)
            return frozenset(
                key
                for entries in pods.values()
                if not (complete and self._has_ended(entries, now, holdings.pods))
                for entry in entries
                for key in entry.keys
            )

    def _has_ended(
        self,
        entries: Iterable[Entry],
        now: Collection[tuple[str, str, str]],
        pods: frozenset[PodName],
    ) -> bool:
        found = [(key, entry.container) for entry in entries for key in entry.keys]
        known = [(*key, name) for key, name in found if name in self._devices[key].containers]
        if known:
            return not any(each in now for each in known)
        return not all(self._narrowed((self._devices[key] for key, _ in found), pods))

    def _narrowed(self, devices: Iterable[_Device], pods: frozenset[PodName]) -> Iterator[bool]:
        """Yield whether a pod is left that may have the device, of each of ``devices``."""
        for device in devices:
            if device.allocated > self._known:  # since ``pods`` were listed
                yield True
                continue
            before = pods - device.earlier if device.possible is None else device.possible
            device.possible = before & pods
            yield bool(device.possible)
