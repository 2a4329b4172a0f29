"""What templates can say of a device."""

import posixpath
from collections.abc import Mapping
from typing import Final

from deviceplugin.kit import pci, usb, vfio
from deviceplugin.kit.hardware import Device
from deviceplugin_generic.discovery.matching import Match

_UNSTABLE: Final = frozenset({"index", "name", "others", "usb", "uuid"})
"""Properties that are no attributes: others change while the device stays the same."""
_NAMED: Final = {"pci": "pci", "mdev": "mdevUUID"}
"""Attributes by which KubeVirt finds a device: the device's own name, by its subsystem."""


def properties(name: str, index: int, match: Match) -> Mapping[str, str]:
    """Return the properties for templates, without the id and the share."""
    device = match.device
    path = match.paths[0] if match.paths else ""
    found = {"name": name, "index": str(index), "path": path, "basename": posixpath.basename(path)}
    if match.abilities:
        found["can"] = ",".join(match.abilities)
    if device is None:
        return found
    function, unit = pci.of(device), vfio.of(device)
    numbers = [device.number(which) for which in (0, 1)]
    texts = ["" if number is None else f"{number:04x}" for number in numbers]
    return found | {
        "serial": device.serial,
        "port": device.port,
        "vendor": texts[0],
        "product": texts[1],
        "address": function.address if function else "",
        "group": unit.group if unit else "",
        "driver": device.driver,
        "others": ",".join(unit.others) if unit else "",
        "uuid": device.name if device.subsystem == "mdev" else "",
        "usb": _usb_address(device),
    }


def attributes(known: Mapping[str, str], device: Device | None) -> Mapping[str, str]:
    """Return the attributes of a device with the properties ``known``."""
    found = {key: value for key, value in known.items() if value and key not in _UNSTABLE}
    own = _NAMED.get(device.subsystem) if device else None
    return {**found, own: device.name} if device and own else found


def _usb_address(device: Device) -> str:
    """Return the numbers of the bus and of the nearest USB device, as virtual machines need it."""
    found = device.nearest("usb")
    names = (usb.bus_node(found, device.tree.dev) if found else "").split("/")[-2:]
    return ":".join(str(int(name)) for name in names if name)
