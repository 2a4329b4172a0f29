"""A plugin as somebody else writes it: ``demo/sensors.py``, by what the kit has."""

import runpy
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from deviceplugin_testing.fixture import Kubelet

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "demo/sensors.py"
SENSOR = "example.com/sensor"
program = types.SimpleNamespace(**runpy.run_path(str(PROGRAM), run_name="sensors"))
Sensor, SensorPlugin, SensorSettings = (
    program.Sensor,
    program.SensorPlugin,
    program.SensorSettings,
)


@contextmanager
def running(kubelet: Kubelet, file: Path) -> Iterator[subprocess.Popen[str]]:
    simulated = kubelet.simulated
    process = subprocess.Popen(
        [
            *(sys.executable, PROGRAM, f"--config={file}"),
            *(f"--plugin-dir={simulated.plugin_dir}", "--http-address=off"),
            f"--pod-resources-socket={simulated.pod_resources_socket}",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_changed_file_changes_the_sensors_and_an_invalid_one_does_not(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    file = tmp_path / "sensors.yaml"
    file.write_text("sensors: [{name: door, port: /dev/null}]\n")
    with running(kubelet, file) as process:
        kubelet.simulated.wait_for(SENSOR, {"door"})
        file.write_text("sensors:\n- {name: Wall, port: /dev/null}\n")
        assert process.stderr
        refusal = next(line for line in process.stderr if "invalid configuration ignored" in line)
        assert f"{file}:2: sensors[0].name: 'Wall' is not a name of 1 to 63" in refusal
        file.write_text("sensors: [{name: wall, port: /dev/null}]\n")
        kubelet.simulated.wait_for(SENSOR, {"wall"}, {"door"})
        assert 1 == kubelet.simulated.registration_count(SENSOR)


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


def test_a_sensor_that_has_never_been_there_is_unhealthy(tmp_path: Path) -> None:
    sensor = Sensor("door", tmp_path / "none")
    (device,) = SensorPlugin(SensorSettings(sensors=(sensor,))).discover()
    assert not device.health


def test_it_has_at_most_60_lines() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 60
