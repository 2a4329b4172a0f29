"""What is advertised of what was found: under which names, and in how many shares."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import numa, sharing
from deviceplugin_amd.gpus import Gpu
from deviceplugin_amd.handover import Used
from deviceplugin_amd.look import Found, Unit
from deviceplugin_amd.placement import Place
from deviceplugin_amd.settings import AmdSettings

DOMAIN: Final = "amd.com"
GPU: Final = f"{DOMAIN}/gpu"
KFD_NODE: Final = "kfd"


def offered(found: Found, settings: AmdSettings) -> list[Unit]:
    """Return the units that are advertised; why others are not is added to ``found.skipped``.

    Under one name there is one kind: whole GPUs, or partitions of one style.
    """
    units = [unit for unit in found.units if _is_chosen(unit.gpu, settings)]
    if settings.resource_naming_strategy == "mixed":
        return units
    counts = Counter(_kind(gpu) for gpu in {unit.gpu for unit in units})
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    for unit in units:
        if _kind(unit.gpu) != kinds[0]:
            found.skipped[unit.gpu.address] = (
                f"it is {_kind(unit.gpu)}, most are {kinds[0]}, and resource-naming-strategy is "
                "single: use mixed"
            )
    return [unit for unit in units if _kind(unit.gpu) == kinds[0]]


def used(units: Sequence[Unit], settings: AmdSettings) -> list[Used]:
    """Return by which ids each unit is given out."""
    return [
        Used(unit.id, unit.node.gpu_id if unit.node else 0, frozenset(_ids(unit, settings)))
        for unit in units
    ]


def _ids(unit: Unit, settings: AmdSettings) -> Iterator[str]:
    return (share.id for share in sharing.shares(dp.Device(unit.id), settings.shares))


def devices(
    units: Sequence[Unit], health: Mapping[str, dp.Health], settings: AmdSettings
) -> list[dp.Device]:
    """Return the devices of ``units``, each with its health by the id of its unit."""
    whole = (_device(unit, health[unit.id], settings) for unit in units)
    return [share for device in whole for share in sharing.shares(device, settings.shares)]


def places(units: Sequence[Unit], settings: AmdSettings) -> dict[str, Place]:
    """Return what each device is of, by id, in order."""
    return {
        one: Place(_resource(unit.gpu, settings), unit.gpu.address, unit.id)
        for unit in units
        for one in _ids(unit, settings)
    }


def _device(unit: Unit, health: dp.Health, settings: AmdSettings) -> dp.Device:
    return dp.Device(
        unit.id,
        resource=_resource(unit.gpu, settings),
        health=health,
        topology=numa.topology(unit.gpu.numa),
        nodes=[_node(settings.dev_dir, name) for name in (KFD_NODE, *unit.nodes)],
        attributes=dict(_attributes(unit)),
    )


def _node(dev: Path, name: str) -> dp.DeviceNode:
    return dp.DeviceNode(str(dev / name), f"/dev/{name}")


def _attributes(unit: Unit) -> Iterator[tuple[str, str]]:
    gpu = unit.gpu
    yield "pci", gpu.address
    if gpu.name:
        yield "model", gpu.name
    if str(gpu.style):
        yield "partitioning", str(gpu.style)


def _resource(gpu: Gpu, settings: AmdSettings) -> str:
    if settings.resource_naming_strategy == "single" or not str(gpu.style):
        return GPU
    return f"{DOMAIN}/{gpu.style}"


def _kind(gpu: Gpu) -> str:
    return "whole" if gpu.style.is_whole else str(gpu.style)


def _is_chosen(gpu: Gpu, settings: AmdSettings) -> bool:
    included = not settings.include or _any_names(settings.include, gpu)
    return included and not _any_names(settings.exclude, gpu)


def _any_names(patterns: Sequence[str], gpu: Gpu) -> bool:
    names = (gpu.address, gpu.product, gpu.name)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
