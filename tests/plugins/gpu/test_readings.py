"""What NVML measures, read from the fake driver."""

import pytest

from deviceplugin_gpu._gpu_metrics import GpuMetrics, Reading
from deviceplugin_gpu._health import Health
from deviceplugin_gpu._nvml import NvmlError
from deviceplugin_gpu._readings import NvmlReader
from fake_nvml import FakeMig, Fleet
from gpu_rig import GpuRig, uuid

GIB = 1 << 30


def reader(rig: GpuRig) -> NvmlReader:
    driver = rig.driver()
    driver.look()
    return NvmlReader(driver.session)


def test_all_that_a_gpu_can_tell_is_read_in_base_units(rig: GpuRig) -> None:
    rig.has(
        Fleet.of(
            1,
            utilization=25,
            memory=80 * 1024,
            used=1024,
            temperature=41,
            power=62500,
            energy=1000250,
            corrected=3,
            throttle=4,
            replays=7,
            remapped_corrected=1,
            remap_pending="yes",
        )
    )
    assert Reading(
        utilization=0.25,
        memory_used=GIB,
        memory_total=80 * GIB,
        temperature=41,
        power=62.5,
        energy=1000.25,
        ecc_corrected=3,
        ecc_uncorrected=0,
        throttling=4,
        pcie_replays=7,
        remapped_corrected=1,
        remapped_uncorrected=0,
        remapping_pending=True,
        remapping_failed=False,
    ) == reader(rig).read(uuid(0))


def test_what_a_gpu_cannot_tell_is_none(rig: GpuRig) -> None:
    rig.has(Fleet.of(1, ecc="off", compute="7.0"))
    for name in (
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetMemoryInfo",
    ):
        rig.fake.fail(name, 3)
    found = reader(rig).read(uuid(0))
    assert [None] * 8 == [
        found.power,
        found.energy,
        found.memory_used,
        found.memory_total,
        found.ecc_corrected,
        found.remapped_uncorrected,
        found.remapping_pending,
        found.remapping_failed,
    ]
    rig.has(Fleet.of(1, migs=(FakeMig(1, "1g.5gb"),)))
    rig.fake.mend()
    assert None is reader(rig).read(uuid(0)).utilization


def test_a_lost_gpu_costs_its_own_values_only(rig: GpuRig) -> None:
    rig.has(Fleet.of(2))
    driver = rig.driver()
    gpus = driver.look().snapshot.gpus
    rig.fake.change(0, state="lost")
    with pytest.raises(NvmlError):
        NvmlReader(driver.session).read(uuid(0))
    families = GpuMetrics(NvmlReader(driver.session)).collect(gpus, Health())
    [temperatures] = [family for family in families if "temperature" in family.name]
    assert [uuid(1)] == [sample.labels["uuid"] for sample in temperatures.samples]


def test_while_nvml_is_shut_down_nothing_is_read(rig: GpuRig) -> None:
    rig.has(Fleet.of(1))
    driver = rig.driver()
    gpus = driver.look().snapshot.gpus
    driver.close()
    families = GpuMetrics(NvmlReader(driver.session)).collect(gpus, Health())
    assert [] == [family.name for family in families if "temperature" in family.name]
