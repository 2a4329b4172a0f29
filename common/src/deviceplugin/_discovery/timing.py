"""The intervals and time limits of discovery."""

from dataclasses import dataclass

from deviceplugin._discovery.retention import Retention


@dataclass(frozen=True, slots=True)
class DiscoveryTiming:
    """The intervals and time limits of a plugin's discovery, in seconds."""

    interval: float
    deadline: float
    """Devices that could not be discovered for this long are unhealthy."""
    retention: Retention
