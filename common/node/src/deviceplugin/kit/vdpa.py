"""vDPA devices, the virtio hardware on the bus ``vdpa``: who drives one, and by which node.

A card, a sub-function of it or a module makes them, and names are the administrator's.
"""

from typing import Final

from deviceplugin.kit.hardware import Device
from deviceplugin.kit.sysfs import natural

__all__ = ["kind", "node"]

_KINDS: Final = {"vhost_vdpa": "vhost", "virtio_vdpa": "virtio"}
_NODE: Final = "vhost-vdpa-"


def kind(device: Device) -> str:
    """Return ``vhost`` if programs drive a vDPA device, ``virtio`` if the kernel does, or empty."""
    return _KINDS.get(device.own_driver, "")


def node(device: Device) -> str:
    """Return the path of a vDPA device's node, such as ``/dev/vhost-vdpa-0``, or empty.

    Only the driver ``vhost_vdpa`` makes one. A reboot or a driver that is bound anew changes its
    number.
    """
    if kind(device) != "vhost":
        return ""
    tree = device.tree
    names = sorted(filter(_is_node, tree.entries(device.path)), key=natural)
    return next(filter(None, (tree.node(f"{device.path}/{name}") for name in names)), "")


def _is_node(name: str) -> bool:
    return name.startswith(_NODE)
