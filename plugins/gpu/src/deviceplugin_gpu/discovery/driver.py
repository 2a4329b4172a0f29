"""The driver as this process knows it: asked again and again, gone and back, with all GPUs seen."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deviceplugin.kit.backoff import Backoff
from deviceplugin.kit.log import Problems
from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.health.incidents import Record
from deviceplugin_gpu.metrics.collector import GpuMetrics
from deviceplugin_gpu.metrics.nvml_reader import NvmlReader
from deviceplugin_gpu.nvml.api import NvmlError, Session
from deviceplugin_gpu.nvml.enumeration import Enumeration, enumerate_gpus
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.nvml.unidentified_gpus import UnidentifiedGpu
from deviceplugin_gpu.snapshot import Gpu, Snapshot, size

log = logging.getLogger(__name__)

_FIRST_REST, _LONGEST_REST = 1.0, 120.0
"""Seconds between initializations of NVML while something is wrong.

Without persistence mode they take long, and disturb nobody but who waits for them.
"""


class Driver:
    """NVML, and what was seen through it. It outlives a plugin object with other settings.

    ``state_file`` remembers the health of GPUs for the next process. ``clock`` gives seconds.
    ``look`` is for one thread at a time.
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
        self.metrics = GpuMetrics(NvmlReader(self.session), clock=clock)
        self._sysfs = sysfs
        self._clock = clock
        self._latest: Enumeration | None = None
        self._bound: frozenset[str] | None = None
        self._reopen_at = float("-inf")
        self._rests = Backoff(_FIRST_REST, _LONGEST_REST)
        self._until = math.inf
        self._unanswered = Problems(log)

    def look(self, patience: float = math.inf) -> Enumeration:
        """Look at all GPUs, with NVML initialized anew where something has been wrong before.

        Only then does NVML see a GPU that is back after a reset, or a driver that was reloaded.
        After ``patience``, in seconds, no further GPU is begun with: it cannot be read then. With
        NVML initialized anew there is as much time again.

        Raises:
            NvmlError: Nothing can be told of any GPU.
        """
        self._until = self._clock() + patience
        fresh = not self.session.is_open
        found = None
        try:
            self.session.open()
            found = self._look()
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
        return self._keep(self._look())

    def _should_reopen(self, found: Enumeration) -> bool:
        others = self._are_others()
        if not found.is_troubled:
            self._rests.reset()
            return others
        # What is new is told first: another initialization may have to wait.
        lasting = self._latest is not None and self._latest.is_troubled
        return others or (lasting and self._may_reopen())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of the last look."""
        return self.snapshot.gpus

    @property
    def unidentified(self) -> tuple[UnidentifiedGpu, ...]:
        """GPUs that the last look found, and could not name."""
        return self._latest.unidentified if self._latest else ()

    @property
    def snapshot(self) -> Snapshot:
        """What the last look found; nothing before the first."""
        return self._latest.snapshot if self._latest else Snapshot()

    def close(self) -> None:
        """Let go of the driver."""
        with suppress(NvmlError):
            self.session.close()

    def _are_others(self) -> bool:
        """Tell whether the kernel's driver has other GPUs than at the last look.

        NVML knows those that were there when it was initialized.
        """
        folder = self._sysfs / "bus/pci/drivers/nvidia"
        try:
            bound = frozenset(path.name for path in folder.iterdir() if ":" in path.name)
        except OSError:
            bound = frozenset()
        before, self._bound = self._bound, bound
        return before is not None and before != bound

    def _may_reopen(self) -> bool:
        now = self._clock()
        if now < self._reopen_at:
            return False
        self._reopen_at = now + self._rests.next_wait()
        return True

    def _look(self) -> Enumeration:
        with self.session.use():
            return enumerate_gpus(self._sysfs, self.snapshot, self._is_late)

    def _is_late(self) -> bool:
        return self._clock() > self._until

    def _keep(self, found: Enumeration) -> Enumeration:
        known = {gpu.uuid for gpu in self.gpus}
        for gpu in found.snapshot.gpus:
            if gpu.uuid not in known:
                log.info("GPU found", extra=_facts(gpu))
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
