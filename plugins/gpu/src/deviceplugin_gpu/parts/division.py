"""The parts of all GPUs: read at each discovery, and made and removed for claims."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final

import deviceplugin as dp
from deviceplugin_gpu.advertised.devices import Divided
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.nvml import api, instances
from deviceplugin_gpu.nvml.api import Handle, NvmlError, call
from deviceplugin_gpu.nvml.instances import Device, Profile
from deviceplugin_gpu.parts import making
from deviceplugin_gpu.parts.plan import Made, Part, Plan, Reading, gpu_of, own_of, parts_of, plan
from deviceplugin_gpu.parts.reading import is_shared, mode_problem, read, resource
from deviceplugin_gpu.parts.switching import Ours, Switch
from deviceplugin_gpu.snapshot import Gpu, Snapshot

_LOST: Final = "{} was made as {}, and no claim is known to have it: remove it once it is unused"
_REMOVED: Final = "its MIG device {} was removed by somebody else: a new pod gets a new one"
_NOT_OFFERED: Final = "mig-on-demand: only claims get MIG devices that are made: use protocol: dra"


class Division:
    """Divides GPUs as ``mig-on-demand`` says. ``observe`` is for one thread at a time."""

    def __init__(self, settings: GpuSettings, driver: Driver) -> None:
        self._settings, self._driver = settings, driver
        self._readings: Mapping[str, Reading] = {}
        self._removed: frozenset[str] = frozenset()
        self._idle: set[str] = set()
        self._turns: dict[str, Lock] = {}
        self._naming = Lock()
        self._ours = Ours(settings.state_file)
        self._switch = Switch(self._ours)
        self._lost: Mapping[str, str] = {}
        self.units: Mapping[str, Unit] = {}
        """The MIG devices that claims have, by the id of the part."""

    @property
    def switched(self) -> frozenset[str]:
        """UUIDs of GPUs whose MIG mode we switched on: they cannot be used as a whole."""
        return frozenset(one for one in self._ours.names if one == gpu_of(one))

    def begin(self, made: Mapping[str, str]) -> None:
        """Begin a discovery: what it reads, or is in ``made``, may be removed meanwhile."""
        with self._naming:
            self._removed &= frozenset(made.values())
        self._ours.refresh()

    def observe(self, snapshot: Snapshot, before: Mapping[str, str], plugin: dp.Plugin) -> Divided:
        """Return the parts of the GPUs of ``snapshot``, read since ``begin``.

        ``before`` are the parts that claims had then. One can be made or removed meanwhile: its MIG
        device is never taken for somebody else's.
        """
        self._settle(snapshot, plugin)
        readings = {gpu.uuid: self._read(gpu, before) for gpu in snapshot.gpus}
        now = plugin.made
        made, both = {*before.items(), *now.items()}, before.items() & now.items()
        lasting = [pair for pair in both if pair[1] not in self._removed]
        plans = {
            gpu.uuid: plan(
                gpu,
                resource(gpu, self._settings),
                readings[gpu.uuid],
                own_of(gpu, made),
                own_of(gpu, lasting),
                self._ours.names,
            )
            for gpu in snapshot.gpus
        }
        self._readings = readings
        self._find_made(snapshot, plugin)
        return Divided(
            replace(snapshot, gpus=tuple(self._rest(snapshot, plans, made))),
            {one: part.unit for each in plans.values() for one, part in each.parts.items()},
            dict(_described(plans)),
            dict(self._problems(snapshot, plans, made)),
            tuple(self._warnings()),
        )

    def make(self, part_id: str, plugin: dp.Plugin) -> Unit:
        """Make a part that a claim has, and return its MIG device.

        AllocationError if nothing is made, or another DevicePluginError if something may be.
        """
        gpu = next((gpu for gpu in self._driver.gpus if gpu.uuid == gpu_of(part_id)), None)
        if gpu is None:
            raise dp.AllocationError(f"{part_id}: its GPU is not there")
        with self._turn(gpu.uuid):
            try:
                with self._handle(gpu) as handle:
                    unit = self._make(gpu, handle, part_id, plugin.made.get(part_id, ""))
            except NvmlError as error:
                has_begun = not self._ours.names.isdisjoint({part_id, gpu.uuid})
                kind = dp.DevicePluginError if has_begun else dp.AllocationError
                raise kind(f"{part_id}: {error}") from error
            with self._naming:
                self.units = {**self.units, part_id: unit}
                self._removed -= {unit.uuid}  # a driver may give the same again
        return unit

    def _make(self, gpu: Gpu, handle: Handle, part_id: str, identity: str) -> Unit:
        if not instances.mode(handle)[0]:
            if why := mode_problem(gpu, self._settings, is_on=False):
                raise dp.AllocationError(f"{part_id}: {why}")
            self._switch.on(gpu.uuid, handle)
        parts = self._parts(gpu, handle)
        if part_id not in parts:
            raise dp.AllocationError(f"{part_id}: its GPU has no such place")
        minor = call("nvmlDeviceGetMinorNumber", handle)  # switching the mode may have changed it
        is_begun, begin = self._ours.has(part_id), partial(self._ours.add, part_id)
        device = making.make(handle, part_id, parts, identity, begin, is_begun=is_begun)
        return _unit(parts[part_id], device, minor)

    def unmake(self, part_id: str, identity: str, plugin: dp.Plugin) -> None:
        """Remove a part, or what is left of it; NvmlError if it is still there.

        Of a GPU that is lost nothing is left: only a reset brings it back, without MIG devices.
        Nothing is after a reboot, either, before which ``identity`` was that of the part.
        """
        uuid = gpu_of(part_id)
        gpu = next((gpu for gpu in self._driver.gpus if gpu.uuid == uuid), Gpu(-1, uuid))
        others = [one for one in plugin.made if gpu_of(one) == uuid and one != part_id]
        identity = plugin.made.get(part_id, identity)
        with self._turn(uuid):
            with self._naming:
                its = self.units.get(part_id)
                self._removed |= {identity, its.uuid if its else ""}
            try:
                with self._handle(gpu) as handle:
                    if self._remove(gpu, handle, part_id, identity) and not others:
                        self._switch.off(gpu.uuid, handle)
            except NvmlError as error:
                if not self._is_away(error, uuid):
                    raise
            self._ours.remove(part_id)
            with self._naming:
                self.units = {one: unit for one, unit in self.units.items() if one != part_id}

    def _remove(self, gpu: Gpu, handle: Handle, part_id: str, identity: str) -> bool:
        """Remove a part; return whether nothing else is left of its GPU."""
        if not instances.mode(handle)[0]:
            return True
        is_begun = self._ours.has(part_id)
        return making.remove(handle, part_id, self._parts(gpu, handle), identity, is_begun=is_begun)

    def _turn(self, uuid: str) -> Lock:
        """Return the lock of a GPU: a driver that hangs on one holds up no other."""
        return self._turns.setdefault(uuid, Lock())

    def _is_away(self, error: NvmlError, uuid: str) -> bool:
        is_known = any(gpu.uuid == uuid for gpu in self._driver.gpus)
        is_absent = error.code == api.NOT_FOUND and not (is_known or self._driver.session.held)
        return is_absent or error.code == api.GPU_IS_LOST

    @contextmanager
    def _handle(self, gpu: Gpu) -> Iterator[Handle]:
        self._driver.session.open()
        with self._driver.session.use():
            yield self._driver.session.gpu(gpu.uuid, gpu.pci)

    def _profiles(self, gpu: Gpu, handle: Handle) -> Sequence[Profile]:
        return self._readings.get(gpu.uuid, Reading()).profiles or instances.profiles(handle)

    def _parts(self, gpu: Gpu, handle: Handle) -> dict[str, Part]:
        return parts_of(gpu, resource(gpu, self._settings), self._profiles(gpu, handle))

    def _read(self, gpu: Gpu, made: Mapping[str, str]) -> Reading:
        before = self._readings.get(gpu.uuid, Reading())
        has_made = any(gpu_of(one) == gpu.uuid for one in made)
        return read(gpu, self._driver.session, self._settings, before, has_made=has_made)

    def _rest(self, snapshot: Snapshot, plans: Mapping[str, Plan], made: Made) -> Iterator[Gpu]:
        """Yield the GPUs without what claims have of them, if anything else can be offered."""
        self._lost = dict(self._find_lost(snapshot, plans, made))
        claimed = self._removed.union((identity for _, identity in made), self._lost)
        shows_migs = self._settings.mig_strategy != "none"
        for gpu in snapshot.gpus:
            one = plans[gpu.uuid]
            kept = [
                mig
                for mig in gpu.migs
                if mig.uuid not in claimed
                and mig.gpu_instance not in one.own
                and mig.placement not in one.unfinished
            ]
            left = replace(gpu, migs=tuple(kept))
            if gpu.uuid in self.switched and not kept:
                yield replace(left, mig_enabled=False)
            elif (kept and shows_migs) or not (
                gpu.mig_enabled and (one.parts or own_of(gpu, made))
            ):
                yield left

    def _find_lost(
        self, snapshot: Snapshot, plans: Mapping[str, Plan], made: Made
    ) -> Iterator[tuple[str, str]]:
        """Yield the UUIDs of MIG devices that claims without a record may have, each with why."""
        lost = self._ours.names.difference(one for one, _ in made)
        for gpu in snapshot.gpus:
            parts = plans[gpu.uuid].parts
            places = {parts[one].place: one for one in lost if one in parts}
            for mig in gpu.migs:
                one = places.get(mig.placement) if mig.placement else None
                if one and mig.uuid not in self._removed:
                    yield mig.uuid, _LOST.format(mig.uuid, one)

    def _find_made(self, snapshot: Snapshot, plugin: dp.Plugin) -> None:
        """Find the MIG devices of claims that an earlier process made."""
        there = {mig.uuid: (gpu, mig) for gpu in snapshot.gpus for mig in gpu.migs}
        with self._naming:
            made = plugin.made
            units = {one: unit for one, unit in self.units.items() if one in made}
            for one, identity in made.items():
                if identity in there and one not in units:
                    gpu, mig = there[identity]
                    units[one] = Unit(resource(gpu, self._settings), replace(gpu, migs=()), mig)
            self.units = units

    def _warnings(self) -> Iterator[str]:
        yield from self._lost.values()
        if self._settings.mig_on_demand == "off":
            return
        if self._settings.protocol != "dra":
            yield _NOT_OFFERED
        reasons = {uuid: one for uuid, one in self._readings.items() if one.reason}
        if reasons and len(reasons) == len(self._readings):
            said = "; ".join(dict.fromkeys(one.reason for one in reasons.values()))
            yield f"mig-on-demand has no effect: no GPU can be divided: {said}"
            return
        for uuid, one in self._readings.items():
            if one.problem:
                yield f"parts of GPU {uuid}: {one.problem}"

    def _problems(
        self, snapshot: Snapshot, plans: Mapping[str, Plan], made: Made
    ) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with parts, and with whole GPUs whose MIG mode we switched."""
        for one in plans.values():
            for part_id, uuid in one.gone.items():
                yield part_id, _REMOVED.format(uuid)
        for gpu in snapshot.gpus:
            if gpu.uuid in self.switched and gpu.mig_enabled:
                if not own_of(gpu, made):
                    yield gpu.uuid, self._switch.stuck.get(gpu.uuid, "MIG is not yet switched off")
                elif is_shared(gpu, self._settings):  # since the settings were changed
                    yield gpu.uuid, "claims have parts of it"

    def _settle(self, snapshot: Snapshot, plugin: dp.Plugin) -> None:
        """Switch MIG off where that failed, or where a process died before it.

        Not at the first discovery that finds it so: that can be of a process that only looks, while
        the plugin makes a part.
        """
        idle = {
            gpu.uuid
            for gpu in snapshot.gpus
            if gpu.uuid in self.switched and gpu.answers and not own_of(gpu, plugin.made.items())
        }
        for gpu in snapshot.gpus:
            turn = self._turn(gpu.uuid)
            if gpu.uuid in idle & self._idle and turn.acquire(blocking=False):
                try:
                    if not own_of(gpu, plugin.made.items()):
                        self._settle_one(gpu)
                finally:
                    turn.release()
        self._idle = idle

    def _settle_one(self, gpu: Gpu) -> None:
        with suppress(dp.DevicePluginError), self._handle(gpu) as handle:  # it is tried again
            if not instances.instances(handle, self._profiles(gpu, handle)):
                self._switch.off(gpu.uuid, handle)


def _unit(part: Part, device: Device, minor: int) -> Unit:
    mig = replace(
        part.profile.mig,
        uuid=device.uuid,
        index=device.number,
        gpu_instance=device.instance,
        compute_instance=device.compute,
        placement=part.place,
    )
    return replace(part.unit, gpu=replace(part.unit.gpu, minor=minor), mig=mig)


def _described(plans: Mapping[str, Plan]) -> Iterator[tuple[str, dp.Part]]:
    for uuid, one in plans.items():
        if one.parts:
            yield uuid, dp.Part(one.counters, one.total, on_demand=False)
            for part_id in one.parts:
                yield part_id, dp.Part(one.counters, one.takes[part_id])
