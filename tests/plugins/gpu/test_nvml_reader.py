"""What the fake driver measures, as metrics."""

from deviceplugin_gpu.discovery.driver import Driver
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig, uuid


def samples(rig: GpuRig, **given: object) -> dict[str, float]:
    """Return the metrics of GPU 0 by name and last label."""
    plugin = rig.plugin(**given)
    plugin.discover()
    return {
        sample.name.removeprefix("deviceplugin_gpu_")
        + "".join(
            f"/{value}" for key, value in sample.labels.items() if key == "type"
        ): sample.value
        for family in plugin.metrics()
        for sample in family.samples
        if sample.labels["uuid"] == uuid(0)
    }


def test_what_a_gpu_measures_is_told_in_base_units(rig: GpuRig) -> None:
    rig.has(Fleet.of(1, memory=81920, used=1024, utilization=75, temperature=61, power=350_500))
    found = samples(rig)
    expected = {
        "utilization_ratio": 0.75,
        "memory_used_bytes": 1 << 30,
        "memory_bytes": 80 << 30,
        "temperature_celsius": 61,
        "power_watts": 350.5,
        "healthy": 1,
        "ecc_errors_total/corrected": 0,
    }
    assert expected == {name: found[name] for name in expected}


def test_what_a_gpu_cannot_tell_is_left_out(rig: GpuRig) -> None:
    rig.has(Fleet.of(1)).fake.fail("nvmlDeviceGetPowerUsage", 3)
    rig.fake.fail("nvmlDeviceGetTemperature", 4)
    rig.fake.fail("nvmlDeviceGetTemperatureV", 4)
    found = samples(rig)
    assert {"utilization_ratio"} == found.keys() & {
        "utilization_ratio",
        "power_watts",
        "temperature_celsius",
    }


def test_a_lost_gpu_has_health_and_no_readings(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    plugin.discover()
    rig.fake.change(0, state="lost")
    plugin.discover()
    found = {
        family.name.removeprefix("deviceplugin_gpu_"): [
            sample.value for sample in family.samples if sample.labels["uuid"] == uuid(0)
        ]
        for family in plugin.metrics()
    }
    assert ([0], []) == (found["healthy"], found["utilization_ratio"])


def test_reading_stands_in_nobodys_way_when_nvml_is_shut_down(rig: GpuRig) -> None:
    driver: Driver = rig.has(Fleet.of(1)).driver()
    driver.poll()
    driver.close()
    names = {family.name for family in driver.metrics.collect(driver.gpus, driver.health)}
    assert "deviceplugin_gpu_info" in names
    assert "deviceplugin_gpu_power_watts" not in names


def test_a_driver_that_calls_it_events_is_asked_by_no_older_name(rig: GpuRig) -> None:
    rig.has(Fleet.of(1))
    samples(rig)
    calls = rig.fake.calls()
    assert 2 == calls["nvmlDeviceGetCurrentClocksEventReasons"]  # for health, and for metrics
    assert 0 == calls["nvmlDeviceGetCurrentClocksThrottleReasons"]
