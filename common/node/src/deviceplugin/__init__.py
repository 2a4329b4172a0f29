"""A framework for Kubernetes device plugins.

Derive a class from ``Plugin``, return the devices and their health from its ``discover``, and call
``main``. Everything else has a default.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from deviceplugin._app import signals as _signals

with _signals.ending_at_once():
    from deviceplugin import model as _model
    from deviceplugin._app.command import main
    from deviceplugin._app.run import run
    from deviceplugin._config.settings import Settings
    from deviceplugin.errors import (
        AllocationError,
        ConfigError,
        DevicePluginError,
        DiscoveryError,
        UnhealthyDeviceError,
        UnknownDeviceError,
    )
    from deviceplugin.model import Allocation, Device, DeviceNode, Health, Mount, Topology, Version
    from deviceplugin.plugin import Plugin

if _TYPE_CHECKING:
    from deviceplugin.model import Counters, Part
else:

    def __getattr__(name: str) -> object:
        """Load what few plugins use."""
        if name in {"Counters", "Part"}:
            return getattr(_model, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Allocation",
    "AllocationError",
    "ConfigError",
    "Counters",
    "Device",
    "DeviceNode",
    "DevicePluginError",
    "DiscoveryError",
    "Health",
    "Mount",
    "Part",
    "Plugin",
    "Settings",
    "Topology",
    "UnhealthyDeviceError",
    "UnknownDeviceError",
    "Version",
    "main",
    "run",
]


def __dir__() -> list[str]:
    """Return the public names, without the modules that importing them has brought along."""
    return __all__
