"""The partitions of GPUs that are made for claims, as devices: which there are, and their health.

Only a GPU that is whole, or that this plugin has divided, has such partitions. One that somebody
else has divided keeps its partitions, which are offered as they are.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.selection import Selection
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import described
from deviceplugin_amd.advertised import hardware, recipe
from deviceplugin_amd.division import Division, Place, Size, places
from deviceplugin_amd.gpus import WHOLE, Gpu, Style
from deviceplugin_amd.settings import AmdSettings
from deviceplugin_amd.snapshot import Reader, Snapshot, Unit, unit
from deviceplugin_amd.switch import FILE, Put, Switch, unwritable
from deviceplugin_amd.switch import put as put_for_real

_STATE: Final = "partitions.json"
"""The file beside that of health."""
_CHANGED: Final = "partition-changed"
_NOT_OFFERED: Final = "partitions-on-demand: only claims get them: use protocol: dra"


class Partitions:
    """The partitions for claims. ``made`` returns those that claims have."""

    def __init__(
        self,
        settings: AmdSettings,
        sysfs: Sysfs,
        made: Callable[[], Mapping[str, str]],
        pause: Callable[[float], object] | None = None,
        put: Put | None = None,
    ) -> None:
        self._modes = [mode.lower() for mode in dict.fromkeys(settings.partitions_on_demand)]
        self._is_offered = settings.protocol == "dra"
        self._selection = Selection(settings.include, settings.exclude)
        self._sysfs, self._dev = sysfs, settings.dev_dir
        file = settings.state_file and settings.state_file.with_name(_STATE)
        pause = pause or Event().wait
        reader = Reader(sysfs, self._dev, pause)
        self._switch = Switch(reader, file, made, put or put_for_real, pause)
        self._made = made
        self._sizes = {key: one.size for key, one in self._switch.divided.items()}
        """What GPUs had when they were whole, by address."""
        self._divisions: Mapping[str, Division] = {}
        self._units: Mapping[str, Unit] = {}
        """The partitions of GPUs that the plugin has divided."""
        self._changed: dict[str, str] = {}
        """Why GPUs are not as claims need them."""
        self.shortfalls: list[str] = []

    def snapshot(self, read: Callable[[], Snapshot]) -> Snapshot:
        """Return what ``read`` returns, of a time in which no claim has changed a GPU's mode."""
        while True:
            self._switch.refresh()
            before, found = self._switch.divided, read()
            self._switch.refresh()
            if self._switch.divided is before:
                return found

    def fold(self, found: Snapshot) -> Sequence[Unit]:
        """Have GPUs that are divided for claims be whole in ``found``; return their partitions."""
        divisions: dict[str, Division] = {}
        units: list[Unit] = []
        self._changed = {}
        self.shortfalls = [] if self._is_offered or not self._modes else [_NOT_OFFERED]
        claimed = list(places(self._made()))
        found.claimed = {place.address for place in claimed}
        for gpu in found.gpus:
            own = [one for one in found.units if one.gpu.address == gpu.address]
            held = [one for one in claimed if one.address == gpu.address]
            if (division := self._division(gpu, own, held)) is None:
                continue
            divisions[gpu.address] = division
            if why := self._change(gpu, held):
                self._changed[gpu.address] = why
            if not gpu.style.is_whole:
                units += own if self._switch.is_ours(gpu) else []
                self._fold(found, division.gpu)
        self._divisions, self._units = divisions, {one.id: one for one in units}
        return units

    def amounts(self) -> dict[str, Mapping[str, int]]:
        """Return what whole GPUs have, by address: the same while they are divided."""
        return {address: one.size.amounts() for address, one in self._divisions.items()}

    def devices(self, whole: dp.Device, health: Mapping[str, dp.Health]) -> Iterator[dp.Device]:
        """Yield the device of a GPU, and those of its partitions; ``health`` is that of units."""
        if not (division := self._divisions.get(whole.id)):
            yield whole
            return
        if why := self._changed.get(whole.id):
            whole = replace(whole, health=dp.Health.unhealthy(why, _CHANGED))
        counters, made = division.counters, self._made()
        yield replace(whole, part=dp.Part(counters, counters.amounts, on_demand=False))
        own = {key: one for key, one in self._units.items() if one.gpu.address == whole.id}
        mode = next((one.gpu.style.compute for one in own.values()), "")
        offered = [one for one in division.consumed if one.style.compute in self._modes]
        held = [one for one in places(made) if one.address == whole.id]
        for place in dict.fromkeys([*offered, *held]):
            device = division.part(whole, place, made.get(place.id, ""))
            if there := own.get(place.id):
                device = self._with_nodes(replace(device, health=health[place.id]), there)
            elif place.style.compute == mode:
                device = replace(device, health=dp.Health.unhealthy("KFD has no node for it"))
            yield device

    def make(self, device: dp.Device) -> dp.Device:
        """Make a partition, as ``Plugin.make_part``."""
        place = next(places([device.id]), None)
        division = self._divisions.get(place.address) if place else None
        if not (place and division):
            reason = f"{device.id}: no such partition can be made"
            raise dp.AllocationError(reason, device_ids=[device.id])
        try:
            there = self._switch.make(place, division.size)
        except dp.DevicePluginError as error:
            if place.address in self._switch.divided:  # something may be left of it
                raise
            raise dp.AllocationError(str(error), device_ids=[device.id]) from error
        identity = f"{there.gpu.identity}/{there.nodes[-1]}"
        part = device.part and replace(device.part, identity=identity)
        return self._with_nodes(replace(device, part=part), there)

    def unmake(self, device: dp.Device, identity: str) -> None:
        """Make a GPU whole after the last of its partitions, as ``Plugin.unmake_part``."""
        for place in places([device.id]):
            self._switch.unmake(place, identity)

    def _division(self, gpu: Gpu, own: Sequence[Unit], held: Sequence[Place]) -> Division | None:
        """Return how a GPU can be divided; None, with a shortfall, if it is not for claims."""
        if gpu.style.is_whole and own and own[0].node:
            self._sizes[gpu.address] = self._size(own)
        elif not self._switch.is_ours(gpu) and self._is_recorded(gpu, held):
            self._sizes[gpu.address] = self._size(own)
            self._switch.adopt(gpu, self._sizes[gpu.address])
        size = self._sizes.get(gpu.address)
        modes = {*self._modes, *(one.style.compute for one in held)}
        whole = replace(gpu, style=Style(WHOLE, gpu.style.memory))
        division = Division.of(whole, size, modes) if size and size.dies else None
        obstacle = self._obstacle(gpu, division, held)
        missing = [one.upper() for one in self._modes if not division or one not in division.modes]
        lacking = f"with {gpu.style.memory} it has no mode {', '.join(missing)}" if missing else ""
        if (why := obstacle or lacking) and self._modes and self._selection.has(gpu.names):
            self.shortfalls.append(f"{gpu.address}: no partitions on demand: {why}")
        return division if division and (held or (division.consumed and not obstacle)) else None

    def _obstacle(self, gpu: Gpu, division: Division | None, held: Sequence[Place]) -> str:
        """Return why no claim can get partitions of a GPU; empty if one can, or has some."""
        if not gpu.style.compute:
            return "it cannot be divided"
        if not (gpu.style.is_whole or self._switch.is_ours(gpu) or held):
            return f"it is {gpu.style} already"
        if not division:
            return "KFD does not say how many XCC it has: add deployments/components/amd-privileged"
        return "" if held else unwritable(gpu.folder / FILE)

    def _size(self, own: Sequence[Unit]) -> Size:
        has = Counter({"dies": sum(one.node.get("num_xcc") for one in own if one.node)})
        for one in own:
            has.update(described.amounts(one, self._sysfs))
        return Size(has["dies"], has["memory"], has["simdUnits"], has["computeUnits"])

    def _is_recorded(self, gpu: Gpu, held: Sequence[Place]) -> bool:
        """Return whether claims have got partitions of a GPU since its driver was bound."""
        made = [self._made().get(one.id, "") for one in held if one.style == gpu.style]
        return any(identity.startswith(f"{gpu.identity}/") for identity in made)

    def _change(self, gpu: Gpu, held: Sequence[Place]) -> str:
        """Return why a GPU is not as claims need it; empty if it is."""
        if self._switch.is_ours(gpu):
            lost = f"it is {gpu.style} for a claim that is not recorded any more: make it SPX"
            return "" if held else lost
        if not gpu.style.is_whole:
            return f"somebody else has divided the GPU: it is {gpu.style}"
        # After a reboot no part has an identity, and they are made again.
        made = any(self._made().get(one.id) for one in held)
        is_lost = made and gpu.address in self._switch.divided
        return "somebody else has made the GPU whole, or has bound it anew" if is_lost else ""

    def _fold(self, found: Snapshot, whole: Gpu) -> None:
        folded = unit(found, self._dev, whole, whole.minor)
        # KFD's node is the first partition's by now, whose processes are not the GPU's.
        node = folded.node and replace(folded.node, gpu_id=0)
        found.units = [one for one in found.units if one.gpu.address != whole.address]
        found.units.append(replace(folded, node=node))

    def _with_nodes(self, device: dp.Device, there: Unit) -> dp.Device:
        nodes, pieces = recipe(there, self._dev), hardware(there, self._dev)
        return replace(device, nodes=nodes, hardware=pieces)
