"""The intervals and time limits of discovery."""

from typing import Final, NamedTuple

from deviceplugin._config.settings import Settings
from deviceplugin._discovery.retention import Retention

_DISCOVERIES: Final = 3
"""Least number of discoveries within the deadline, so that a single failure has no effect."""


class DiscoveryTiming(NamedTuple):
    """The intervals and time limits of a plugin's discovery, in seconds."""

    interval: float
    deadline: float
    """Devices that could not be discovered for this long are unhealthy."""
    retention: Retention

    @classmethod
    def of(cls, settings: Settings) -> "DiscoveryTiming":
        """Return those of ``settings``."""
        deadline = settings.discovery_deadline.total_seconds()
        return cls(
            interval=min(settings.discovery_interval.total_seconds(), deadline / _DISCOVERIES),
            deadline=deadline,
            retention=Retention(
                grace=settings.vanished_grace.total_seconds(),
                unknown=settings.vanished_retention.total_seconds(),
            ),
        )
