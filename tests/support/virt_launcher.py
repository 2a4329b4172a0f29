"""What KubeVirt's virt-launcher makes of the variables of its container.

After pkg/virt-launcher/virtwrap/device/hostdevice of kubevirt/kubevirt, at d923fdb.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

_VALID: Final = {
    "PCI_RESOURCE": r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]",
    "MDEV_PCI_RESOURCE": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "USB_RESOURCE": r"[0-9]+:[0-9]+",
}
"""Prefixes of variables, in the order of the pools, each with the form of its addresses."""


class LaunchError(Exception):
    """The machine does not start."""


def launch(host_devices: Sequence[Mapping[str, str]], envs: Mapping[str, str]) -> dict[str, str]:
    """Return the address of each of ``hostDevices``, by its name."""
    found: dict[str, str] = {}
    count = 0
    for prefix, form in _VALID.items():
        pool = _pool(prefix, {one["deviceName"] for one in host_devices}, envs)
        for one in host_devices:
            address = next(iter(pool.get(one["deviceName"], [])), "")
            if not address:
                continue
            if not re.fullmatch(form, address):
                raise LaunchError(f"{one['name']}: bad value {address}")
            pool = {name: [a for a in some if a != address] for name, some in pool.items()}
            found[one["name"]] = address
            count += 1
    if count != len(host_devices):
        raise LaunchError(f"{len(host_devices)} were asked for, and there are {count}")
    return found


def _pool(prefix: str, resources: set[str], envs: Mapping[str, str]) -> dict[str, list[str]]:
    names = {
        one: f"{prefix}_{one.upper().replace('/', '_').replace('.', '_')}" for one in resources
    }
    return {
        one: [part for part in envs[name].removesuffix(",").split(",") if part]
        for one, name in names.items()
        if name in envs
    }
