"""A plugin as somebody else writes it: ``demo/sensors.py``, by what the kit has."""

import runpy
import types
from datetime import timedelta
from pathlib import Path

import pytest

from deviceplugin.errors import ConfigError

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "demo/sensors.py"
SENSOR = "example.com/sensor"
program = types.SimpleNamespace(**runpy.run_path(str(PROGRAM), run_name="sensors"))
Sensor, SensorPlugin, SensorSettings = (
    program.Sensor,
    program.SensorPlugin,
    program.SensorSettings,
)


def test_its_file_has_sensors_and_what_is_wrong_with_them_is_told(tmp_path: Path) -> None:
    file = tmp_path / "sensors.yaml"
    file.write_text("sensors: [{name: door, port: /dev/none}]\n")
    (device,) = SensorPlugin(SensorSettings.of_file(file)).discover()
    assert ("door", False) == (device.id, bool(device.health))
    file.write_text("sensors:\n- {name: Wall, port: /dev/null}\n")
    with pytest.raises(ConfigError, match=rf"^{file}:2: sensors\[0\].name: 'Wall' is not a name"):
        SensorSettings.of_file(file)


def test_a_sensor_that_is_away_for_a_moment_stays_healthy(tmp_path: Path) -> None:
    port = tmp_path / "ttyUSB0"
    port.touch()
    patient = Sensor("patient", port, timedelta(hours=1))
    hasty = Sensor("hasty", port, timedelta.resolution)
    plugin = SensorPlugin(SensorSettings(sensors=(patient, hasty)))
    assert [True, True] == [bool(device.health) for device in plugin.discover()]
    port.unlink()
    list(plugin.discover())  # from now on they are away
    first, second = plugin.discover()
    assert (True, f"{port} is away") == (bool(first.health), second.health.reason)


def test_it_has_at_most_60_lines() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 60
