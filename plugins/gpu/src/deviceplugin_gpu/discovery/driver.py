"""The driver as this process sees it: polled at each discovery, even when it goes and comes."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import deviceplugin as dp
from deviceplugin.kit.backoff import Backoff
from deviceplugin.kit.cdi import Edits
from deviceplugin.kit.log import Problems
from deviceplugin_gpu import host
from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.health.incidents import Record
from deviceplugin_gpu.metrics import GpuMetrics, Reading, read_gpu
from deviceplugin_gpu.nvml import open_nodes
from deviceplugin_gpu.nvml.api import NvmlError, Place, Session, call
from deviceplugin_gpu.nvml.enumeration import Enumeration, UnidentifiedGpu, enumerate_gpus
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.snapshot import Gpu, Snapshot, size
from deviceplugin_gpu.usage import GpuUsage

log = logging.getLogger(__name__)

_FIRST_REST, _LONGEST_REST = 1.0, 120.0
"""Seconds between initializations of NVML while something is wrong.

Without persistence mode an initialization is slow. It delays only callers that wait for it.
"""


class Driver:
    """NVML, and what it last reported. It outlives a plugin object when settings change.

    ``state_file`` keeps the health of GPUs for the next process. ``clock`` returns seconds.
    Only one thread at a time may call ``poll``.
    """

    def __init__(
        self,
        library: Library,
        sysfs: Path,
        state_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.library = library
        self.health = Health(record=Record(state_file), clock=clock)
        self.session = Session(library)
        self.session.addresses = lambda: host.served(sysfs)
        self.minors: dict[str, int] = {}
        """The N of /dev/nvidiaN of each GPU that was ever read, by PCI address."""
        self.files = Edits()
        """The driver's files that containers get by CDI, or got before these were lost."""
        self.metrics = GpuMetrics(self._read, clock=clock)
        self.usage = GpuUsage(self.session, clock)
        self._closed: frozenset[str] = frozenset()
        """The addresses of GPUs without which NVML was initialized last."""
        self._sysfs = sysfs
        self._clock = clock
        self._latest: Enumeration | None = None
        self._bound: list[Path] | None = None
        self._reopen_at = float("-inf")
        self._rests = Backoff(_FIRST_REST, _LONGEST_REST)
        self._until = math.inf
        self._unanswered = Problems(log)

    def poll(self, patience: float = math.inf) -> Enumeration:
        """Read all GPUs, and initialize NVML again first if something was wrong before.

        Only a new initialization makes NVML see a GPU that was reset, or a driver that was
        reloaded. After ``patience`` seconds the GPUs that were not reached count as unreadable.
        After another initialization there is as much time again.
        """
        self._until = self._clock() + patience
        fresh = not self.session.is_open
        found = None
        try:
            self.session.open()
            found = self._enumerate()
        except NvmlError:
            if fresh or not self._may_reopen():
                self.close()
                raise
        else:
            if fresh or not self._should_reopen(found):
                return self._keep(found)
        try:
            self.session.reopen()
        except NvmlError:
            if found is None or not self.session.is_open:
                raise
            return self._keep(found)  # a call that hangs keeps it open
        self._until = self._clock() + patience
        return self._keep(self._enumerate())

    def _should_reopen(self, found: Enumeration) -> bool:
        others = self._are_others()
        if not found.is_troubled:
            self._rests.reset()
            return others
        # A new problem is reported first. Another initialization can wait.
        lasting = self._latest is not None and self._latest.is_troubled
        return others or (lasting and self._may_reopen())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of the last poll."""
        return self.snapshot.gpus

    @property
    def unidentified(self) -> tuple[UnidentifiedGpu, ...]:
        """GPUs that the last poll found, but could not identify."""
        return self._latest.unidentified if self._latest else ()

    @property
    def snapshot(self) -> Snapshot:
        """The result of the last poll; empty before the first."""
        return self._latest.snapshot if self._latest else Snapshot()

    def let_go(self, addresses: frozenset[str], dev: Path) -> None:
        """Close the GPUs at these PCI addresses, and no longer ask for them.

        NVML has to be shut down for that, for a moment: the others are opened again when they are
        asked for. DiscoveryError if a process still has a node open.
        """
        self.session.held = addresses
        is_new = bool(addresses - self._closed)
        if self.session.is_open and (is_new or self._open(addresses, dev, own=True)):
            self.session.reopen()
        self._closed = addresses
        if users := self._open(addresses, dev):
            raise dp.DiscoveryError(f"its device node is still open in {', '.join(users)}")

    def _open(self, addresses: frozenset[str], dev: Path, *, own: bool = False) -> list[str]:
        wanted = {self.minors.get(address) for address in addresses}
        others = {minor for address, minor in self.minors.items() if address not in addresses}
        return open_nodes.users(
            dev, lambda minor: minor in wanted or (None in wanted and minor not in others), own=own
        )

    def take_back(self, addresses: frozenset[str]) -> None:
        """Use these GPUs again; NvmlError if one that the driver has cannot be read."""
        closed = addresses & (self._closed | self.session.held)
        self.session.held -= addresses
        self._closed -= addresses
        if not closed:
            return  # the others are not interrupted for what has been open all along
        if self.session.is_open:
            self.session.reopen()
        else:
            self.session.open()
        with self.session.use():
            for address in closed & {*host.served(self._sysfs)}:
                call("nvmlDeviceGetUUID", Place(0, address).handle())

    def _read(self, uuid: str) -> Reading:
        address = next((gpu.pci for gpu in self.gpus if gpu.uuid == uuid), "")
        return read_gpu(self.session, uuid, address)

    def close(self) -> None:
        """Shut NVML down."""
        with suppress(NvmlError):
            self.session.close()

    def _are_others(self) -> bool:
        """Return whether the kernel's driver has other GPUs than at the last poll.

        NVML knows only the GPUs that existed when it was initialized.
        """
        bound = host.matches(self._sysfs / "bus/pci/drivers/nvidia", "*:*")
        before, self._bound = self._bound, bound
        return before is not None and before != bound

    def _may_reopen(self) -> bool:
        now = self._clock()
        if now < self._reopen_at:
            return False
        self._reopen_at = now + self._rests.next_wait()
        return True

    def _enumerate(self) -> Enumeration:
        with self.session.use():
            late = lambda: self._clock() > self._until  # noqa: E731
            return enumerate_gpus(self.session, self._sysfs, self.snapshot, late)

    def _keep(self, found: Enumeration) -> Enumeration:
        known = {gpu.uuid for gpu in self.gpus}
        for gpu in found.snapshot.gpus:
            if gpu.uuid not in known:
                log.info("GPU found", extra=_facts(gpu))
            if gpu.minor is not None:
                self.minors[gpu.pci] = gpu.minor
        self._unanswered.say_all("driver query not answered", found.unanswered)
        self._latest = found
        return found


def _facts(gpu: Gpu) -> dict[str, object]:
    facts = {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.name,
        "memory": size(gpu.memory),
        "pci": gpu.pci,
        "numa": gpu.numa,
        "mig": len(gpu.migs) if gpu.mig_enabled else None,
        "problem": gpu.problem,
    }
    return {name: value for name, value in facts.items() if value not in {None, ""}}
