"""What drivers reported of the health of devices, and until when a report holds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from deviceplugin.proto.dra import HEALTH_TIMEOUT, MAX_HEALTH_MESSAGE
from deviceplugin.proto.dra import dra_health_v1alpha1_pb2 as pb

UNKNOWN: Final = "Unknown"
_WORDS: Final = {pb.HEALTHY: "Healthy", pb.UNHEALTHY: "Unhealthy"}

Key = tuple[str, str]
"""Pool and device."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a driver reported of a device."""

    health: str = UNKNOWN
    message: str = ""
    timeout: float = HEALTH_TIMEOUT
    at: float = 0.0
    """When it arrived, by the kubelet's clock. The time in the report does not count."""

    @property
    def said(self) -> tuple[str, str, float]:
        """What is news if it differs."""
        return self.health, self.message, self.timeout


class HealthCache:
    """The last report of each device. ``host.changed`` guards it. It outlives the kubelet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._drivers: dict[str, dict[Key, Report]] = {}

    def get(self, driver: str, key: Key) -> Report:
        """Return the last report of a device, or one that says nothing if it is too old."""
        report = self._drivers.get(driver, {}).get(key)
        return report if report and not self._is_old(report) else Report()

    def _is_old(self, report: Report) -> bool:
        return self._clock() - report.at > report.timeout

    def update(self, driver: str, devices: Iterable[pb.DeviceHealth]) -> set[Key]:
        """Apply a report, and return the devices whose health changed."""
        known = self._drivers.setdefault(driver, {})
        now = self._clock()
        reported = {(d.device.pool_name, d.device.device_name): _read(d, now) for d in devices}
        changed = {
            key
            for key, report in reported.items()
            if key not in known or known[key].said != report.said
        }
        silent = {key: old for key, old in known.items() if key not in reported}
        lost = {
            key: Report(timeout=old.timeout, at=now)
            for key, old in silent.items()
            if old.health != UNKNOWN and self._is_old(old)
        }
        known.update(reported | lost)
        return changed | lost.keys()

    def clear(self, driver: str) -> None:
        """Forget what a driver reported."""
        self._drivers.pop(driver, None)


def _read(device: pb.DeviceHealth, now: float) -> Report:
    timeout = device.health_check_timeout_seconds
    message = device.message.encode()
    if len(message) > MAX_HEALTH_MESSAGE:
        message = message[: MAX_HEALTH_MESSAGE - 3] + b"..."
    return Report(
        _WORDS.get(device.health, UNKNOWN),
        message.decode(errors="replace"),
        float(timeout) if timeout > 0 else HEALTH_TIMEOUT,
        now,
    )
