"""Advertise NVIDIA GPUs and their MIG devices, shared or not."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin_gpu import _diagnosis, _nodes, _resources, _strategies
from deviceplugin_gpu._library import Library
from deviceplugin_gpu._look import Sight, look
from deviceplugin_gpu._nodes import Nodes, Roots
from deviceplugin_gpu._nvml import NvmlError, Session
from deviceplugin_gpu._resources import Unit
from deviceplugin_gpu._settings import GpuSettings
from deviceplugin_gpu._snapshot import Gpu
from deviceplugin_gpu._watch import Watch

log = logging.getLogger(__name__)

_REST: Final = 1.0
"""Seconds between initializations of NVML, at the least."""
_GIB: Final = 1 << 30


@dataclass(slots=True)
class Driver:
    """What a process has of NVML; it outlives a plugin object with other settings."""

    session: Session
    seen: tuple[Gpu, ...] = ()
    reopened_at: float = field(default=float("-inf"))


class GpuPlugin(dp.Plugin):
    """NVIDIA GPUs.

    ``driver`` is shared with the plugin object before, if there was one. ``clock`` gives seconds.
    """

    def __init__(
        self,
        settings: GpuSettings | None = None,
        *,
        driver: Driver | None = None,
        roots: Roots | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or GpuSettings()
        self._roots = roots or Roots()
        self._clock = clock
        library = Library(self._settings.driver_root_ctr_path)
        self._driver = driver or Driver(Session(library))
        self._watch = Watch(self._driver.session, clock)
        self._sight: Sight | None = None
        self._units: dict[str, Unit] = {}
        self._nodes: dict[str, tuple[dp.DeviceNode, ...]] = {}
        self._told: set[str] = set()
        self.watch_paths = [self._roots.dev / "nvidiactl"]

    @override
    def discover(self) -> Iterable[dp.Device]:
        try:
            sight = self._look()
        except NvmlError as error:
            self._explain(error)
            raise
        if not sight.snapshot.gpus:
            self._explain(None)
        offer = _resources.offer(sight.snapshot, self._settings)
        self._warn([*offer.warnings, *_strange(sight)])
        nodes = _nodes.look(self._roots)
        return self._devices(offer.units, nodes)

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        units = [self._units[device.id] for device in devices]
        self._refuse(units)
        return _strategies.allocation(units, self._nodes, self._settings)

    @override
    def changes(self, stop: Flag) -> Iterator[None]:
        for _ in self._watch.events(stop):
            yield

    def _look(self) -> Sight:
        """Look, and look again with NVML initialized anew where something is wrong.

        NVML notices a GPU that is back after a reset only then.
        """
        session, driver = self._driver.session, self._driver
        fresh = not session.is_open
        try:
            session.open()
            sight = self._look_once()
            if fresh or not _is_troubled(sight):
                return self._keep(sight)
        except NvmlError:
            if fresh:
                with suppress(NvmlError):
                    session.close()
                raise
        if self._clock() - driver.reopened_at >= _REST:
            driver.reopened_at = self._clock()
            session.close()
            session.open()
        return self._keep(self._look_once())

    def _look_once(self) -> Sight:
        links = self._sight.snapshot.links if self._sight else None
        with self._driver.session.use():
            return look(self._roots.sys, self._driver.seen, links)

    def _keep(self, sight: Sight) -> Sight:
        before = self._sight.handles.keys() if self._sight else set()
        if before and before != sight.handles.keys():
            self._watch.renew()
        known = {gpu.uuid for gpu in self._driver.seen}
        for gpu in sight.snapshot.gpus:
            if gpu.uuid not in known:
                log.info("GPU found", extra=_facts(gpu))
        self._driver.seen = sight.snapshot.gpus
        self._sight = sight
        return sight

    def _devices(self, units: Sequence[Unit], nodes: Nodes) -> list[dp.Device]:
        passed = self._settings.pass_device_specs and self._settings.device_list_strategy.plain
        root = self._settings.host_dev_root
        found = {unit.id: nodes.of(unit, root) for unit in units} if passed else {}
        # A request can still name a device of the list before.
        before = self._units
        self._nodes = found
        self._units = {**before, **{unit.id: unit for unit in units}}
        aligned = _aligned(units)
        return [
            dp.Device(
                unit.id,
                resource=unit.resource,
                health=self._health(unit.gpu),
                topology=(
                    dp.Topology((unit.gpu.numa,))
                    if unit.resource in aligned and unit.gpu.numa is not None
                    else None
                ),
                nodes=found.get(unit.id, ()),
                attributes=_attributes(unit),
            )
            for unit in units
        ]

    def _health(self, gpu: Gpu) -> dp.Health:
        if gpu.problem:
            return dp.Health.unhealthy(gpu.problem)
        return dp.Health()

    def _refuse(self, units: Sequence[Unit]) -> None:
        """Raise AllocationError if replicas do not go together."""
        shared = [unit for unit in units if unit.replica is not None]
        if not shared:
            return
        if self._settings.sharing.one_at_most and len(units) > 1:
            raise dp.AllocationError(
                f"{len(units)} devices requested, and more than 1 of a shared resource brings no "
                "more computing power: request 1 (failRequestsGreaterThanOne)"
            )
        gpus = {unit.gpu.uuid for unit in units}
        if self._settings.distinct_gpus and len(gpus) < len(units):
            raise dp.AllocationError(
                f"{len(units)} devices requested are of {len(gpus)} different GPUs (distinct-gpus)"
            )

    def _warn(self, warnings: Sequence[str]) -> None:
        for text in warnings:
            if text not in self._told:
                log.warning("left out", extra={"problem": text})
        self._told = set(warnings)

    def _explain(self, error: NvmlError | None) -> None:
        """Log why there are no GPUs, once per reason."""
        reason = str(error)
        if reason in self._told:
            return
        self._told = {reason}
        for finding in _diagnosis.explain(self._roots, self._driver.session.library, error):
            log.warning("no GPU", extra={"finding": finding})


def _is_troubled(sight: Sight) -> bool:
    return bool(sight.strangers) or any(gpu.problem for gpu in sight.snapshot.gpus)


def _strange(sight: Sight) -> list[str]:
    return [f"GPU {index} cannot be read: {why}" for index, why in sight.strangers.items()]


def _aligned(units: Sequence[Unit]) -> set[str]:
    """Return the resources all of whose GPUs have a NUMA node: the kubelet takes no mixture."""
    lacking = {unit.resource for unit in units if unit.gpu.numa is None}
    return {unit.resource for unit in units} - lacking


def _facts(gpu: Gpu) -> dict[str, object]:
    facts = {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.name,
        "memory": _size(gpu.memory),
        "pci": gpu.pci,
        "numa": gpu.numa,
        "mig": len(gpu.migs) if gpu.mig_enabled else None,
        "problem": gpu.problem,
    }
    return {name: value for name, value in facts.items() if value not in {None, ""}}


def _attributes(unit: Unit) -> dict[str, str]:
    gpu, mig = unit.gpu, unit.mig
    attributes = {
        "index": unit.index,
        "model": gpu.name,
        "profile": mig.profile if mig else "",
        "memory": _size(mig.memory if mig else gpu.memory),
        "pci": gpu.pci,
    }
    return {name: value for name, value in attributes.items() if value}


def _size(number: int) -> str:
    return f"{number / _GIB:.4g}Gi" if number else ""
