"""A third party's plugin: configuration with hot reload, kernel events, debounced health."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event

import deviceplugin as dp
from deviceplugin.kit import configuration as cfg
from deviceplugin.kit import udev
from deviceplugin.kit.health import SteadyHealth, Tolerance


@dataclass(frozen=True)
class Sensor:
    """A sensor at a serial port. It is unhealthy after it was away for its patience."""

    name: str
    port: Path
    patience: timedelta = timedelta(seconds=5)


SENSORS = cfg.list_of(
    cfg.record(
        Sensor,
        {
            "name": cfg.needed(cfg.name()),
            "port": cfg.needed(cfg.path()),
            "patience": cfg.duration(),
        },
    )
)


@dataclass(frozen=True, kw_only=True)
class SensorSettings(dp.Settings):
    """The settings of the sensor plugin."""

    sensors: tuple[Sensor, ...] = field(default=(), metadata={"kind": SENSORS})
    """Sensors, each with a name, a port and optionally a patience."""


class SensorPlugin(dp.Plugin):
    """Advertise the sensors in a configuration file."""

    resource = "example.com/sensor"

    def __init__(self, settings: SensorSettings) -> None:
        self.sensors = settings.sensors
        self.steady = SteadyHealth[str]()

    def discover(self) -> Iterable[dp.Device]:
        for sensor in self.sensors:
            is_there = sensor.port.exists()
            found = dp.Health() if is_there else dp.Health.unhealthy(f"{sensor.port} is away")
            tolerance = Tolerance(patience=sensor.patience.total_seconds())
            health = self.steady.judge(sensor.name, found, tolerance)
            yield dp.Device(sensor.name, health=health, nodes=[dp.DeviceNode(str(sensor.port))])

    def changes(self, stop: Event) -> Iterator[None]:
        return udev.changes(stop, subsystems=["tty"], also=self.steady.is_due)


if __name__ == "__main__":
    dp.main(SensorPlugin, settings=SensorSettings, default_config=Path("/etc/sensors.yaml"))
