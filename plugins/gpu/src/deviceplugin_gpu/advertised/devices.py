"""The framework's devices for units, and which of them one container may have."""

from collections.abc import Mapping, Sequence

import deviceplugin as dp
from deviceplugin.kit import numa
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.snapshot import size


def describe(
    units: Sequence[Unit],
    health: Mapping[str, dp.Health],
    nodes: Mapping[str, Sequence[dp.DeviceNode]],
    cdi_names: Mapping[str, str],
) -> list[dp.Device]:
    """Return a device for each unit.

    Args:
        units: The units to advertise.
        health: The health of each unit, by id.
        nodes: Device nodes by id, for those that get any.
        cdi_names: Qualified names by id, for those that have one.
    """
    return [
        dp.Device(
            unit.id,
            resource=unit.resource,
            share_of="" if unit.replica is None else unit.uuid,
            hardware=_hardware(unit),
            health=health[unit.id],
            topology=numa.topology(unit.gpu.numa),
            nodes=nodes.get(unit.id, ()),
            cdi_names=[cdi_names[unit.id]] if unit.id in cdi_names else (),
            attributes=_attributes(unit),
        )
        for unit in units
    ]


def _hardware(unit: Unit) -> list[str]:
    """Return what the unit is: a GPU is also its MIG devices, but these are not the GPU."""
    if unit.mig:
        return [unit.uuid]
    return [unit.gpu.uuid, *(mig.uuid for mig in unit.gpu.migs)]


def refuse(units: Sequence[Unit], settings: GpuSettings) -> None:
    """Check that one container may have these replicas.

    Raises:
        AllocationError: It may not.
    """
    if all(unit.replica is None for unit in units):
        return
    if settings.sharing.one_at_most and len(units) > 1:
        raise dp.AllocationError(
            f"{len(units)} devices requested, but more than 1 of a shared resource gives no "
            "more computing power: request 1 (failRequestsGreaterThanOne)"
        )
    gpus = {unit.gpu.uuid for unit in units}
    if settings.distinct_gpus and len(gpus) < len(units):
        raise dp.AllocationError(
            f"{len(units)} devices requested are of {len(gpus)} different GPUs (distinct-gpus)"
        )


def _attributes(unit: Unit) -> dict[str, str | int]:
    gpu, mig = unit.gpu, unit.mig
    attributes = {
        "index": unit.index,
        "model": gpu.name,
        "profile": mig.profile if mig else "",
        "memory": size(mig.memory if mig else gpu.memory),
        "pci": gpu.pci,
        "parentUUID": gpu.uuid if mig else "",
    }
    found: dict[str, str | int] = {name: value for name, value in attributes.items() if value}
    if mig and mig.placement:
        start, count = mig.placement
        found |= {"placementStart": start, "placementSize": count}
    return found
