"""What is published of a GPU or partition through DRA, by the names of AMD's DRA driver."""

import re
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import kfd
from deviceplugin_amd.gpus import DRIVER
from deviceplugin_amd.snapshot import Unit

_MOST: Final = 1 << 63
"""More than any amount that a device may have."""
_SPELLED: Final = str.maketrans(" ", "_", "()")
_INDEX: Final = re.compile(r"dri/(card|render)D?(\d{1,9})", re.ASCII)
_NUMBERS: Final = re.compile(r"\d+(?:\.\d+){0,2}", re.ASCII)
VERSIONS: Final = {"driver-version": "version", "driver-src-version": "srcversion"}


def description(unit: Unit) -> dict[str, str | int]:
    """Return facts, by the names and types of AMD's DRA driver where it has them."""
    gpu, is_part = unit.gpu, unit.number is not None
    found: dict[str, str | int] = {
        "pci": gpu.address,
        "model": gpu.name,  # an earlier name, as is the next
        "partitioning": str(gpu.style),
        "type": "amdgpu-partition" if is_part else "amdgpu",
        "productName": gpu.name.translate(_SPELLED),
        "partitionProfile": str(gpu.style),
        "deviceID": f"0x{gpu.product}",
        "pciAddr": gpu.address,
        "parentPciAddr": gpu.address if is_part else "",
    }
    for node in unit.nodes:
        if kind := _INDEX.fullmatch(node):
            found[f"{kind[1]}Index"] = int(kind[2])
    return {name: value for name, value in found.items() if value != ""}


def versions(sysfs: Sysfs) -> dict[str, str | int]:
    """Return those of the driver: of the first, which may have more parts, what can be compared."""
    text = {name: sysfs.text(f"module/{DRIVER}/{name}") for name in VERSIONS.values()}
    numbers = _NUMBERS.match(text["version"])
    found: dict[str, str | int] = {
        "driverVersion": dp.Version(numbers[0] if numbers else ""),
        "driverVersionFull": text["version"],
        "driverSrcVersion": text["srcversion"],
    }
    return {name: value for name, value in found.items() if value}


def amounts(unit: Unit, sysfs: Sysfs) -> dict[str, int]:
    """Return what a unit has of memory, in bytes, and to compute with; nothing that is unknown."""
    node = unit.node
    simds, each = (node.get(one) if node else 0 for one in ("simd_count", "simd_per_cu"))
    memory = kfd.memory(sysfs, node) if node else 0
    found = {
        "memory": memory or (unit.gpu.memory if unit.number is None else 0),
        "simdUnits": simds,
        "computeUnits": simds // each if each else 0,
    }
    return {name: amount for name, amount in found.items() if 0 < amount < _MOST}
