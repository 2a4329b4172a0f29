"""Divides GPUs for claims, makes them whole again, and remembers which ones it has divided."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

import deviceplugin as dp
from deviceplugin.kit.state import State
from deviceplugin_amd import kfd
from deviceplugin_amd.division import Place, Size, places
from deviceplugin_amd.gpus import WHOLE, Gpu
from deviceplugin_amd.snapshot import Reader, Snapshot, Unit

Put: TypeAlias = Callable[[Path, str], object]
"""Writes an attribute of sysfs; raises OSError as the kernel does."""

FILE: Final = "current_compute_partition"
_VERSION: Final = 1
_LIMIT: Final = 12.0
"""Seconds to wait for a GPU that is in use or slow, and for another one that is being divided."""
_EVERY: Final = 0.3
_FEW: Final = 3
_REASONS: Final = {
    errno.EBUSY: "the driver is busy: a process that may use the GPU has /dev/kfd open; with older "
    "kernels any process",
    errno.EPERM: "it is in reset, or the container is not privileged",
    errno.EROFS: "/sys is read-only: add deployments/components/amd-privileged",
    errno.EINVAL: "the driver does not allow it for this GPU and its memory mode",
}


def put(path: Path, text: str) -> None:
    """Write an attribute of sysfs, which must exist."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def unwritable(path: Path) -> str:
    """Return why an attribute of sysfs cannot be written; empty if it can be."""
    with suppress(OSError):
        if not path.stat().st_mode & stat.S_IWUSR:  # which access() does not say to root
            return "its driver does not let it be divided, as in a virtual machine"
    return "" if os.access(path, os.W_OK) else _REASONS[errno.EROFS]


class _GoneError(dp.DevicePluginError):
    """The GPU, or its driver, is not there."""


class Divided(NamedTuple):
    """A GPU that the plugin has divided."""

    binding: int
    """Changes when the driver is bound anew, which makes the GPU as the driver wants it."""
    style: str
    size: Size


class Switch:
    """Divides GPUs. Thread-safe. ``made`` returns the partitions that claims have."""

    def __init__(
        self,
        reader: Reader,
        file: Path | None,
        made: Callable[[], Mapping[str, str]],
        put: Put,
        pause: Callable[[float], object],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._reader, self.made, self._put = reader, made, put
        self._pause, self._clock = pause, clock
        self._state = State(file, _VERSION)
        self.divided: Mapping[str, Divided] = self._state.load(_read, {})
        """By PCI address. It is replaced, and never modified."""
        self._is_saved = True
        self._saving = Lock()
        self._unsafe = ""
        self._released: set[Place] = set()
        """Partitions of claims that have ended, whose records may still be there."""
        self._lock = Lock()
        """Of all GPUs, because KFD writes the nodes of all again when one is switched."""

    def refresh(self) -> None:
        """Learn what another process has divided."""
        with self._saving:
            found = self._state.load(_read, self.divided)
            if self._is_saved and found != self.divided:
                self.divided = found

    def is_ours(self, gpu: Gpu) -> bool:
        """Return whether the plugin has divided a GPU as it is."""
        entry = self.divided.get(gpu.address)
        return entry is not None and entry[:2] == (gpu.identity, str(gpu.style))

    def adopt(self, gpu: Gpu, size: Size) -> None:
        """Count a GPU as divided by the plugin: claims say so, though no file does."""
        with suppress(dp.DevicePluginError), self._switching():
            _, now = self._gpu(gpu.address)  # it may have been made whole since
            if (now.identity, now.style) == (gpu.identity, gpu.style):
                self._save(gpu.address, Divided(gpu.identity, str(gpu.style), size))

    def make(self, place: Place, size: Size) -> Unit:
        """Return a partition, for which its GPU is divided unless it is.

        Raises:
            DevicePluginError: It is not there. ``unmake`` undoes what has been done.
        """
        with self._switching() as until:
            self._released.discard(place)
            _, gpu = self._gpu(place.address)
            if not (gpu.style == place.style and self.is_ours(gpu)):
                self._divide(gpu, place, size, until)
            while True:
                found, gpu = self._gpu(place.address)
                there = next((one for one in found.units if one.id == place.id), None)
                if there and not there.missing:
                    return there
                why = found.skipped.get(gpu.address, "the kernel has no render node for it")
                is_final = there is None and gpu.address not in found.skipped
                if is_final or self._clock() >= until:
                    raise dp.DevicePluginError(f"{place.id}: {there.missing if there else why}")
                self._pause(_EVERY)

    def unmake(self, place: Place, identity: str) -> None:
        """Make the GPU whole if no other claim has a partition of it; DevicePluginError if not."""
        with self._switching() as until:
            held = {*places(self.made())}
            self._released &= held
            others = {
                one for one in held - self._released - {place} if one.address == place.address
            }
            entry = self.divided.get(place.address)
            is_ours = entry and identity.partition("/")[0] in ("", str(entry.binding))
            if is_ours and not others:
                self._undo(place.address, until)
            self._released.add(place)

    @contextmanager
    def _switching(self) -> Iterator[float]:
        if not self._lock.acquire(timeout=_LIMIT):
            raise dp.DevicePluginError("another GPU is being divided")
        try:
            with self._state.alone(_LIMIT):
                self.refresh()
                yield self._clock() + _LIMIT
        finally:
            self._lock.release()

    def _gpu(self, address: str) -> tuple[Snapshot, Gpu]:
        """Return what is there, with a GPU; DevicePluginError if that cannot be read."""
        found = self._reader.read()
        gpu = next((one for one in found.gpus if one.address == address), None)
        if gpu and not gpu.in_reset:
            return found, gpu
        if why := gpu.in_reset if gpu else found.skipped.get(address):
            raise dp.DevicePluginError(f"{address}: {why}")
        raise _GoneError(f"{address}: it is gone")

    def _divide(self, gpu: Gpu, place: Place, size: Size, until: float) -> None:
        why = self._unsafe
        if not gpu.style.is_whole:
            why = f"the GPU is divided already: it is {gpu.style}"
        elif gpu.style.memory != place.style.memory:
            why = f"the GPU's memory mode is {gpu.style.memory or 'not known'}"
        # What the plugin could not remember after a crash, it does not do.
        elif not (why or self._save(gpu.address, Divided(gpu.identity, str(place.style), size))):
            why = "the state-file cannot be written"
        if why:
            raise dp.DevicePluginError(f"{place.id}: {why}")
        self._switch(gpu, place.style.compute, until)

    def _undo(self, address: str, until: float) -> None:
        """Make a GPU whole, unless it is whole, gone, or somebody else has divided it anew."""
        with suppress(_GoneError):
            _, gpu = self._gpu(address)
            if self.is_ours(gpu):
                self._switch(gpu, WHOLE, until)
        self._save(address)

    def _save(self, address: str, entry: Divided | None = None) -> bool:
        with self._saving:
            divided = {one: self.divided[one] for one in self.divided if one != address}
            divided |= {address: entry} if entry else {}
            self._is_saved = self._state.save({"gpus": divided})
            if self._is_saved or not entry:  # what the file still has is not true any more
                self.divided = divided
            return self._is_saved

    def _switch(self, gpu: Gpu, mode: str, until: float) -> None:
        """Switch a GPU, which may be in use a little longer than by its pod."""
        before, _ = self._gpu(gpu.address)
        why, is_written = "", False
        while True:
            if not is_written and not (why := self._users(before, gpu)):
                try:
                    self._put(gpu.folder / FILE, mode.upper() + "\n")
                    is_written, why = True, "the driver has not done it"
                except OSError as error:
                    why = _REASONS.get(error.errno or 0, error.strerror or str(error))
                    until = until if error.errno == errno.EBUSY else self._clock()
            after, now = self._gpu(gpu.address)
            if now.style.compute == mode:
                return self._compare(before, after, gpu.address)
            if self._clock() >= until:
                raise dp.DevicePluginError(f"{gpu.address}: not switched to {mode}: {why}")
            self._pause(_EVERY)

    def _users(self, found: Snapshot, gpu: Gpu) -> str:
        ids = [one.gpu_id for one in found.units if one.gpu.address == gpu.address and one.gpu_id]
        users = [user for one in ids for user in kfd.users(self._reader.sysfs, one)]
        return f"still in use by {', '.join(users[:_FEW])}" if users else ""

    def _compare(self, before: Snapshot, after: Snapshot, address: str) -> None:
        """Check that other devices have kept their render nodes, which containers have by number.

        The driver makes the nodes of all partitions when it is bound, and switching leaves them. If
        a kernel does otherwise, no GPU is divided on it any more.
        """
        then, now = ({x.id: x.node.minor for x in one.units if x.node} for one in (before, after))
        moved = [one for one in then if now.get(one, then[one]) != then[one]]
        if moved := [one for one in moved if not one.startswith(address)]:
            self._unsafe = f"dividing a GPU has renumbered the render nodes of {', '.join(moved)}"
            raise dp.DevicePluginError(f"{address}: {self._unsafe}")


def _read(document: Mapping[str, Any]) -> dict[str, Divided]:
    return {
        str(address): Divided(int(binding), str(style), Size(*map(int, size)))
        for address, (binding, style, size) in document["gpus"].items()
    }
