"""What is advertised of GPUs: devices, which of them a container should get, and node labels."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import numa, pieces, placement, sharing
from deviceplugin.kit.labels import key
from deviceplugin.kit.pci import Function
from deviceplugin_intelgpu.gpus import Gpu, product
from deviceplugin_intelgpu.settings import DOMAIN, DRIVER, DRIVERS, IntelGpuSettings

_BY_PATH: Final = "dri/by-path"
_MONITOR: Final = "all"
"""Id of the device that opens all GPUs."""

_PRESENT: Final = "intel.feature.node.kubernetes.io/gpu"
_PRODUCTS: Final[Mapping[str, str]] = {
    "0bda": "Max_1100",
    "0bd5": "Max_1550",
    "56c0": "Flex_170",
    "56c1": "Flex_140",
}
_FAMILIES: Final[Mapping[str, str]] = {
    model: family
    for family, models in {
        "Max_Series": "0bd0 0bd5 0bd6 0bd7 0bd9 0bda 0bdb",
        "Flex_Series": "56c0 56c1",
        "A_Series": "5690 5691 5692 5693 5694 5695 5696 5697 56a0 56a1 56a2 56a3 56a4 56a5 56a6 "
        "56b0 56b1 56b2 56b3 56ba 56bb 56bc 56bd",
    }.items()
    for model in models.split()
}

_MODELS: Final[Mapping[str, tuple[str, str]]] = {
    number: (model, family)
    for family, models in {
        "Data Center Max": "0b69,0bd0,0bd5=Max 1550; 0bd6=Max 1450; 0bd9,0bda,0bdb=Max 1100",
        "Data Center Flex": "56c0=Flex 170; 56c1=Flex 140",
        "Arc A-Series": "56a0=A770; 56a1=A750; 56a2=A580; 56a5=A380; 56a6=A310",
        "Arc Pro A-Series": "56b0=A30M; 56b1=A40/A50; 56b2=A60M; 56b3=A60",
        "Arc B-Series": "b080,b082,b084,b086=B390; b081,b083,b085,b087=B370; e20b=B580; e20c=B570",
        "Arc Pro B-Series": "e211=B60; e212=B50; e222=B65; e223=B70",
        "Iris Xe": "4626=Alder Lake-P; a7a0=Raptor Lake-P",
        "Intel Graphics": "7d67=Arrow Lake-S",
    }.items()
    for numbers, _, model in (entry.partition("=") for entry in models.split("; "))
    for number in numbers.split(",")
}
"""Model and family by PCI number, as Intel's DRA driver names them: in classes and claims too."""


def devices(
    gpus: Sequence[Gpu], health: Mapping[str, dp.Health], settings: IntelGpuSettings
) -> Iterator[dp.Device]:
    """Yield the devices of GPUs, each with its health by the address of its GPU."""
    for gpu in gpus:
        device = _device(gpu, health[gpu.address], settings)
        yield from (replace(device, id=one) for one in ids(gpu, settings))
    if settings.enable_monitoring:
        yield from _monitors(gpus, settings)


def ids(gpu: Gpu, settings: IntelGpuSettings) -> list[str]:
    """Return the ids of the shares of a GPU, in order."""
    numbers = range(settings.shares)
    if settings.device_ids == "card":
        return [f"{gpu.card}-{number}" for number in numbers]
    if settings.shares == 1:
        return [gpu.address]
    return [sharing.share_id(gpu.address, number) for number in numbers]


def resource(gpu: Gpu, settings: IntelGpuSettings) -> str:
    """Return the resource of a GPU."""
    return settings.resources.gpu(gpu.names, settings.resource_name.replace(DRIVER, gpu.driver))


def excess(gpus: Iterable[Gpu], settings: IntelGpuSettings) -> dict[str, str]:
    """Return which resources are too long a list for the kubelet, and why."""
    return sharing.excess(Counter(resource(gpu, settings) for gpu in gpus), settings.shares)


def resources(settings: IntelGpuSettings) -> list[str]:
    """Return all resources that there can be by these settings."""
    of_monitors = settings.monitoring_names if settings.enable_monitoring else ()
    return list(dict.fromkeys([*settings.gpu_names, *of_monitors]))


def _device(gpu: Gpu, health: dp.Health, settings: IntelGpuSettings) -> dp.Device:
    return dp.Device(
        gpu.address,
        resource=resource(gpu, settings),
        share_of=gpu.address if settings.shares > 1 else "",
        health=health,
        topology=numa.topology(gpu.numa),
        nodes=[_node(settings, name) for name in gpu.nodes],
        mounts=list(_mounts(gpu, settings)),
        attributes=_description(gpu),
        capacity={"millicores": 1000, **({} if gpu.memory is None else {"memory": gpu.memory})},
        hardware=[pieces.pci(gpu.address), *(str(settings.dev_dir / one) for one in gpu.nodes)],
    )


def _description(gpu: Gpu) -> dict[str, str | int]:
    """Return facts, by the names, types and values of Intel's DRA driver where it has them."""
    model, family = _MODELS.get(gpu.product, ("Unknown", "Unknown"))
    found: dict[str, str | int] = {
        "pci": gpu.address,
        "product": gpu.product,  # an earlier name
        "driver": gpu.driver,
        "model": model,
        "family": family,
        "type": "gpu" if gpu.physical == gpu.address else "vf",
        "sriov": gpu.can_divide,
        "pciId": f"0x{gpu.product}",
        "pciAddress": gpu.address,
    }
    return found if found["type"] == "gpu" else {**found, "physical-function": gpu.physical}


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
        name = settings.monitoring_names[DRIVERS.index(gpu.driver)]
        watched.setdefault(name, []).append(gpu)
    for name, each in watched.items():
        nodes = [node for gpu in each for node in (*gpu.nodes, *gpu.controllers)]
        yield dp.Device(
            _MONITOR,
            resource=name,
            nodes=[_node(settings, node) for node in dict.fromkeys(nodes)],
        )


class Placement:
    """What to prefer among the devices of a discovery. Never changes, so an RPC can ask it."""

    def __init__(self, gpus: Sequence[Gpu], settings: IntelGpuSettings) -> None:
        self._gpus = {one: gpu for gpu in gpus for one in ids(gpu, settings)}
        self._settings = settings
        policy: sharing.Policy = "packed" if settings.share_policy == "packed" else "spread"
        names = {gpu: (resource(gpu, settings), gpu.physical, gpu.address) for gpu in gpus}
        places = {one: names[gpu] for one, gpu in self._gpus.items()}
        self._shares = sharing.Shares(places, policy)
        self._parts = settings.shares > 1 or any(gpu.physical != gpu.address for gpu in gpus)

    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> list[dp.Device]:
        """Return the devices that a container should get.

        Shares and virtual functions go by the policy, first among cards. Whole GPUs are of one NUMA
        node if that is possible.
        """
        known = {device.id: device for device in (*available, *required)}
        needed = [device.id for device in required]
        if self._settings.share_policy == "none":
            chosen = self._any(list(known), needed, size)
        elif self._parts:
            chosen = self._shares.choose(known, needed, size)
        else:
            chosen = placement.choose(list(known), needed, size, self._nearness)
        return [known[one] for one in chosen]

    def _gpu(self, device: str) -> str:
        gpu = self._gpus.get(device)
        return gpu.address if gpu else device

    def _any(self, free: Sequence[str], needed: Sequence[str], size: int) -> list[str]:
        """Return the first that are free, of as many GPUs as can be."""
        first: dict[str, str] = {}
        for one in (*needed, *free):
            first.setdefault(self._gpu(one), one)
        return list(dict.fromkeys([*needed, *first.values(), *free]))[:size]

    def _nearness(self, one: str, other: str) -> int:
        first, second = self._gpus.get(one), self._gpus.get(other)
        return int(first is not None and second is not None and first.numa == second.numa)


def labels(functions: Iterable[Function]) -> dict[str, str]:
    """Return all labels, none without GPUs. As in the rules, each PCI function counts."""
    kinds = Counter((one.pci_class[:4], product(one)) for one in functions)
    if not kinds:
        return {}
    found = {_PRESENT: "true"}
    for (kind, model), count in kinds.items():
        found[key(DOMAIN, "device-id", f"{kind}-{model}", "count")] = str(count)
        found[key(DOMAIN, "device-id", f"{kind}-{model}", "present")] = "true"
        if model in _FAMILIES:
            found[key(DOMAIN, "family")] = _FAMILIES[model]
        if model in _PRODUCTS:
            found[key(DOMAIN, "product")] = _PRODUCTS[model]
            found[key(DOMAIN, "device", "count")] = str(count)
    return found
