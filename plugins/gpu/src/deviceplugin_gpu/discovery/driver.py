"""The driver as this process knows it: asked again and again, gone and back, with all GPUs seen."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.health.incidents import Record
from deviceplugin_gpu.metrics.collector import GpuMetrics
from deviceplugin_gpu.metrics.nvml_reader import NvmlReader
from deviceplugin_gpu.nvml.api import NvmlError, Session
from deviceplugin_gpu.nvml.enumeration import Sight, look
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.nvml.unidentified_gpus import UnidentifiedGpu
from deviceplugin_gpu.snapshot import Gpu, Snapshot, size

log = logging.getLogger(__name__)

_FIRST_REST, _LONGEST_REST = 1.0, 120.0
"""Seconds between initializations of NVML while something is wrong: twice as many each time.

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
        self._sight: Sight | None = None
        self._seen: dict[str, Gpu] = {}
        self._bound: frozenset[str] | None = None
        self._reopen_at = float("-inf")
        self._rest = _FIRST_REST
        self._until = math.inf

    def look(self, patience: float = math.inf) -> Sight:
        """Look at all GPUs, with NVML initialized anew where something has been wrong before.

        Only then does NVML see a GPU that is back after a reset, or a driver that was reloaded.
        After ``patience``, in seconds, no further GPU is begun with: it cannot be read then. With
        NVML initialized anew there is as much time again.

        Raises:
            NvmlError: Nothing can be told of any GPU.
        """
        self._until = self._clock() + patience
        fresh = not self.session.is_open
        sight = None
        try:
            self.session.open()
            sight = self._look()
        except NvmlError:
            if fresh or not self._may_reopen():
                self.close()
                raise
        else:
            if fresh or not self._should_reopen(sight):
                return self._keep(sight)
        try:
            self.session.reopen()
        except NvmlError:
            if sight is None or not self.session.is_open:
                raise
            return self._keep(sight)  # a call that hangs keeps it open
        self._until = self._clock() + patience
        return self._keep(self._look())

    def _should_reopen(self, sight: Sight) -> bool:
        others = self._are_others()
        if not sight.is_troubled:
            self._rest = _FIRST_REST
            return others
        # What is new is told first: another initialization may have to wait.
        lasting = self._sight is not None and self._sight.is_troubled
        return others or (lasting and self._may_reopen())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of the last look."""
        return tuple(self._seen.values())

    @property
    def unidentified(self) -> tuple[UnidentifiedGpu, ...]:
        """GPUs that the last look found, and could not name."""
        return self._sight.unidentified if self._sight else ()

    @property
    def snapshot(self) -> Snapshot:
        """What the last look found; nothing before the first."""
        return self._sight.snapshot if self._sight else Snapshot()

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
        self._reopen_at, self._rest = now + self._rest, min(2 * self._rest, _LONGEST_REST)
        return True

    def _look(self) -> Sight:
        links = self._sight.snapshot.links if self._sight else None
        with self.session.use():
            return look(self._sysfs, tuple(self._seen.values()), links, self._is_late)

    def _is_late(self) -> bool:
        return self._clock() > self._until

    def _keep(self, sight: Sight) -> Sight:
        for gpu in sight.snapshot.gpus:
            if gpu.uuid not in self._seen:
                log.info("GPU found", extra=_facts(gpu))
        self._seen = {gpu.uuid: gpu for gpu in sight.snapshot.gpus}
        self._sight = sight
        return sight


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
