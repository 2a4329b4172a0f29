"""The intervals and time limits of discovery."""

from typing import NamedTuple

from deviceplugin._discovery.retention import Retention


class DiscoveryTiming(NamedTuple):
    """The intervals and time limits of a plugin's discovery, in seconds."""

    interval: float
    deadline: float
    """Devices that could not be discovered for this long are unhealthy."""
    retention: Retention
