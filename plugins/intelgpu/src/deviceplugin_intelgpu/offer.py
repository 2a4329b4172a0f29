"""What is advertised of the GPUs that were found: resources, ids, shares, nodes and links."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import numa, pieces, sharing
from deviceplugin_intelgpu.gpus import DRIVERS, Gpu
from deviceplugin_intelgpu.settings import DOMAIN, DRIVER, IntelGpuSettings

_BY_PATH: Final = "dri/by-path"
_MONITOR: Final = "all"
"""Id of the device that opens all GPUs."""


def devices(
    gpus: Sequence[Gpu], health: Mapping[str, dp.Health], settings: IntelGpuSettings
) -> Iterator[dp.Device]:
    """Yield the devices of GPUs, each with its health by the address of its GPU."""
    for gpu in gpus:
        device = _device(gpu, health[gpu.address], settings)
        for share, one in zip(sharing.shares(device, settings.shares), ids(gpu, settings)):  # noqa: B905
            yield replace(share, id=one)
    if settings.enable_monitoring:
        yield from _monitors(gpus, settings)


def ids(gpu: Gpu, settings: IntelGpuSettings) -> list[str]:
    """Return the ids of the shares of a GPU, in order."""
    if settings.device_ids == "card":
        return [f"{gpu.card}-{number}" for number in range(settings.shares)]
    whole = dp.Device(gpu.address)
    return [share.id for share in sharing.shares(whole, settings.shares)]


def resource(gpu: Gpu, settings: IntelGpuSettings) -> str:
    """Return the resource of a GPU."""
    return settings.resource_name.replace(DRIVER, gpu.driver)


def resources(settings: IntelGpuSettings) -> list[str]:
    """Return all resources that there can be by these settings."""
    names = [settings.resource_name.replace(DRIVER, driver) for driver in DRIVERS]
    if settings.enable_monitoring:
        names += [_monitoring(driver, settings) for driver in DRIVERS]
    return list(dict.fromkeys(names))


def _monitoring(driver: str, settings: IntelGpuSettings) -> str:
    split = settings.monitoring_mode == "split"
    return f"{DOMAIN}/{driver}_monitoring" if split else f"{DOMAIN}/monitoring"


def _device(gpu: Gpu, health: dp.Health, settings: IntelGpuSettings) -> dp.Device:
    attributes = {"pci": gpu.address, "product": gpu.product, "driver": gpu.driver}
    if gpu.physical != gpu.address:
        attributes["physical-function"] = gpu.physical
    return dp.Device(
        gpu.address,
        resource=resource(gpu, settings),
        health=health,
        topology=numa.topology(gpu.numa),
        nodes=[_node(settings, name) for name in gpu.nodes],
        mounts=list(_mounts(gpu, settings)),
        attributes=attributes,
        hardware=[pieces.pci(gpu.address), *(str(settings.dev_dir / one) for one in gpu.nodes)],
    )


def _node(settings: IntelGpuSettings, name: str) -> dp.DeviceNode:
    return dp.DeviceNode(str(settings.dev_dir / name), f"/dev/{name}")


def _mounts(gpu: Gpu, settings: IntelGpuSettings) -> Iterator[dp.Mount]:
    """Yield the links by which programs find a GPU by its PCI address."""
    folder = settings.dev_dir / _BY_PATH
    if settings.bypath == "all" and os.path.isdir(folder):  # noqa: PTH112 - never raises
        yield dp.Mount(str(folder), f"/dev/{_BY_PATH}", read_only=True)
    elif settings.bypath == "single":
        for name in gpu.links:
            yield dp.Mount(str(folder / name), f"/dev/{_BY_PATH}/{name}", read_only=True)


def _monitors(gpus: Sequence[Gpu], settings: IntelGpuSettings) -> Iterator[dp.Device]:
    """Yield the devices for monitoring, healthy whatever their GPUs are: that is to be seen."""
    watched: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        watched.setdefault(_monitoring(gpu.driver, settings), []).append(gpu)
    for name, each in watched.items():
        nodes = [node for gpu in each for node in (*gpu.nodes, *gpu.controllers)]
        yield dp.Device(
            _MONITOR,
            resource=name,
            nodes=[_node(settings, node) for node in dict.fromkeys(nodes)],
        )
