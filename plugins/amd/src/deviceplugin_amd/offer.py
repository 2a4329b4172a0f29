"""Which units are advertised, under which names and in how many shares."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import numa, pieces, sharing
from deviceplugin.kit.selection import Selection
from deviceplugin_amd.gpus import Gpu, names
from deviceplugin_amd.settings import AmdSettings
from deviceplugin_amd.snapshot import Snapshot, Unit

DOMAIN: Final = "amd.com"
KFD_NODE: Final = "kfd"


@dataclass(frozen=True, slots=True)
class Offer:
    """A unit and its devices: one for each share, or just one."""

    unit: Unit
    devices: tuple[dp.Device, ...]


def shortfalls(snapshot: Snapshot, settings: AmdSettings) -> Iterator[str]:
    """Yield why GPUs of the node are not advertised, after ``chosen``."""
    selection = Selection(settings.include, settings.exclude)
    yield from selection.shortfalls(gpu.names for gpu in snapshot.gpus)
    for address, reason in snapshot.skipped.items():
        yield f"{address}: {reason}"
    for card in snapshot.waiting:
        if selection.has(names(card)):
            yield f"{card.address}: has no driver: dmesg | grep -i amdgpu"


def chosen(snapshot: Snapshot, settings: AmdSettings) -> list[Unit]:
    """Return the units to advertise; ``snapshot.skipped`` gets the reason why others are not.

    A resource name stands for one kind of device: whole GPUs, or partitions of one style.
    """
    selection = Selection(settings.include, settings.exclude)
    units = [unit for unit in snapshot.units if selection.has(unit.gpu.names)]
    if settings.resource_naming_strategy == "mixed":
        return units
    counts = Counter(_kind(gpu) for gpu in {unit.gpu for unit in units})
    most = min(counts, key=lambda kind: (-counts[kind], kind), default="")
    for unit in units:
        if (kind := _kind(unit.gpu)) != most:
            snapshot.skipped[unit.gpu.address] = (
                f"it is {kind}, most are {most}, and resource-naming-strategy is single: use mixed"
            )
    return [unit for unit in units if _kind(unit.gpu) == most]


def offers(
    units: Sequence[Unit], health: Mapping[str, dp.Health], settings: AmdSettings
) -> Iterator[Offer]:
    """Yield an offer for each unit, with its health by id."""
    for unit in units:
        device = _device(unit, health[unit.id], settings)
        yield Offer(unit, tuple(sharing.shares(device, settings.shares)))


def _device(unit: Unit, health: dp.Health, settings: AmdSettings) -> dp.Device:
    gpu, style = unit.gpu, str(unit.gpu.style)
    name = style if style and settings.resource_naming_strategy == "mixed" else "gpu"
    facts = {"pci": gpu.address, "model": gpu.name, "partitioning": style}
    return dp.Device(
        unit.id,
        resource=f"{DOMAIN}/{name}",
        hardware=[pieces.pci(gpu.address), *(str(settings.dev_dir / one) for one in unit.nodes)],
        health=health,
        topology=numa.topology(gpu.numa),
        nodes=[
            dp.DeviceNode(str(settings.dev_dir / node), f"/dev/{node}")
            for node in (KFD_NODE, *unit.nodes)
        ],
        attributes={key: value for key, value in facts.items() if value},
    )


def _kind(gpu: Gpu) -> str:
    return "whole" if gpu.style.is_whole else str(gpu.style)
