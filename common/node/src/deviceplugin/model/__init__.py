"""What a plugin reports: devices, their health, and what a container needs to use them.

Everything here is frozen and independent of gRPC. The framework checks values when it takes a
snapshot; the constructors do not. So one bad device is skipped and reported, and the others are
unaffected. An error from a constructor would end a ``discover`` that yields, and lose all devices
that were still to come. Constructors therefore repair what can only mean one thing, and keep the
rest as it was given.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from deviceplugin.model._allocation import Allocation, DeviceNode, Joined, Mount
from deviceplugin.model._device import Attribute, Device, Health, Topology, Version

if TYPE_CHECKING:
    from deviceplugin.model._part import Counters, Part
else:

    def __getattr__(name: str) -> object:
        """Load what few plugins use."""
        if name in {"Counters", "Part"}:
            return getattr(import_module("deviceplugin.model._part"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Allocation",
    "Attribute",
    "Counters",
    "Device",
    "DeviceNode",
    "Health",
    "Joined",
    "Mount",
    "Part",
    "Topology",
    "Version",
]
