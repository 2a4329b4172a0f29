"""When a plugin's devices are looked for, and what becomes of them meanwhile."""

from dataclasses import dataclass

from deviceplugin._discovery.retention import Retention


@dataclass(frozen=True, slots=True)
class DiscoveryTiming:
    """When to discover and what to make of it; seconds."""

    interval: float
    deadline: float
    """Devices that could not be looked at for this long are unhealthy."""
    retention: Retention
