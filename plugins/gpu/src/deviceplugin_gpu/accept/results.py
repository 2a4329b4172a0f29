"""What CUDA says in a container, beside what the plugin says of the device."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deviceplugin.checks import Finding, Found, failure, ok

_UUID: Final = re.compile(
    "(?:GPU-|MIG-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII | re.IGNORECASE
)
"""Ids of other forms, as in WSL, on Tegra and of old MIG devices, are not CUDA's."""
_GIB: Final = 1 << 30
_LEAST: Final = 0.8
"""Share of a GPU's memory that CUDA has at least: the driver keeps some."""
_MORE: Final = 1.01
"""The plugin's figure is rounded."""
_MEANS: Final = "a pod would not get the device that the kubelet counts."
_DO: Final = "attach the report to an issue."


def hardware(device_id: str) -> str:
    """Return the UUID of a device, whose replicas have numbers after it."""
    return device_id.partition("::")[0]


def judge(device: Found, result: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare the devices that CUDA has in a container with the one that was allocated."""
    if error := result.get("error"):
        yield failure("CUDA", str(error), means="a CUDA program of a pod would fail.", do=_DO)
        return
    found = result.get("devices", ())
    if not found or (len(found) > 1 and _UUID.fullmatch(hardware(device.id))):
        yield failure("CUDA", f"has {len(found)} devices, not 1", means=_MEANS, do=_DO)
        return
    only = found[0]
    wrong = [*_differences(device, only)]
    if wrong:
        yield failure("CUDA", "; ".join(wrong), means=_MEANS, do=_DO)
        return
    size = f"{only['memory'] / _GIB:.4g}Gi"
    yield ok("CUDA", f"{result['cuda']} on {only['name']}, {size}: the kernel is right")


def _differences(device: Found, found: Mapping[str, Any]) -> Iterator[str]:
    named = _UUID.fullmatch(hardware(device.id))
    uuid = named[1].lower() if named else found["uuid"]
    pci = str(device.attributes.get("pci", found["pci"])).lower()
    for name, wanted in {"uuid": uuid, "pci": pci}.items():
        if found[name] != wanted:
            yield f"{name} {found[name]}, not {wanted}"
    memory = str(device.attributes.get("memory", ""))
    if memory.endswith("Gi"):
        total = float(memory.removesuffix("Gi")) * _GIB
        if not _LEAST * total <= found["memory"] <= _MORE * total:
            yield f"memory {found['memory'] / _GIB:.4g}Gi, not {memory}"
