"""A framework for Kubernetes device plugins.

Derive from ``Plugin``, say in ``discover`` which devices are here and how they are, and call
``main``. Everything else has a default.
"""

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
from deviceplugin.model import Allocation, Device, DeviceNode, Health, Mount, Topology
from deviceplugin.plugin import Plugin

__all__ = [
    "Allocation",
    "AllocationError",
    "ConfigError",
    "Device",
    "DeviceNode",
    "DevicePluginError",
    "DiscoveryError",
    "Health",
    "Mount",
    "Plugin",
    "Settings",
    "Topology",
    "UnhealthyDeviceError",
    "UnknownDeviceError",
    "main",
    "run",
]
