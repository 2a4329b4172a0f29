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
_RANGE: Final = (0.8, 1.01)
"""Share of a device's memory that CUDA has: the driver keeps some, and figures are rounded."""
_MEANS: Final = "a pod would not get the device that the kubelet counts."
ISSUE: Final = "attach the report to an issue."


def gib(device: Found) -> float | None:
    """Return the memory that the plugin says; None if it says none."""
    memory = str(device.attributes.get("memory", ""))
    return float(memory.removesuffix("Gi")) if memory.endswith("Gi") else None


def judge(device: Found, result: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare the devices that CUDA has in a container with the one that was allocated."""
    found, uuid = result["devices"], _UUID.fullmatch(device.hardware)
    if not found or (len(found) > 1 and uuid):
        yield failure("CUDA", f"has {len(found)} devices, not 1", means=_MEANS, do=ISSUE)
        return
    expected = {"uuid": uuid[1].lower()} if uuid else {}
    if "pci" in device.attributes:
        expected["pci"] = str(device.attributes["pci"]).lower()
    wrong = [f"{k} {found[0][k]}, not {v}" for k, v in expected.items() if found[0][k] != v]
    size, total = found[0]["memory"] / _GIB, gib(device)
    if total and not _RANGE[0] * total <= size <= _RANGE[1] * total:
        wrong.append(f"memory {size:.4g}Gi, not {total:g}Gi")
    if wrong:
        yield failure("CUDA", "; ".join(wrong), means=_MEANS, do=ISSUE)
    else:
        text = f"{result['cuda']} on {found[0]['name']}, {size:.4g}Gi: the kernel is right"
        yield ok("CUDA", text)
