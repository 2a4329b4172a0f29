"""What slices say about GPUs: selectors for NVIDIA's driver need only another driver's name."""

from dataclasses import replace
from typing import Any

import pynvml
import pytest

import deviceplugin as dp
from deviceplugin._inventory.validation import device_problem
from deviceplugin_gpu.advertised.devices import describe
from deviceplugin_gpu.advertised.units import GPU, Unit
from deviceplugin_gpu.snapshot import Gpu, License, Link, Mig, Snapshot
from discovered import found
from dra.selecting import candidates, chosen, shipped
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.rig import GpuRig

DRIVER = "nvidia-gpu.device-plugins"
SMALL, LARGE = FakeMig(1, "1g.5gb"), FakeMig(2, "2g.10gb", values={"start": 4})
GPUS = Fleet(
    (
        FakeGpu(0, values={"brand": 2, "cores": 6912}),
        FakeGpu(1, (SMALL, LARGE)),
        FakeGpu(
            2,
            values={
                "name": "NVIDIA GH200 144G HBM3e",
                "memory": 147456,
                "compute": "9.0",
                "addressing": "ats",
                "mig": "off",
            },
        ),
    ),
    links={(0, 1): 4},
)
NAMES = {
    "a100": FakeGpu(0).uuid,
    "1g": SMALL.uuid(1),
    "2g": LARGE.uuid(1),
    "gh200": FakeGpu(2).uuid,
}


@pytest.fixture
def fleet(rig: GpuRig) -> GpuRig:
    """Return a node of which all is known that there can be, also where the MIG devices are."""
    rig.has(GPUS)
    place, bus = FakeGpu(1).pci, rig.roots.sys / "bus/pci/devices"
    (rig.roots.sys / "devices/pci0000:00" / place).mkdir(parents=True)
    bus.mkdir(parents=True)
    (bus / place).symlink_to(rig.roots.sys / "devices/pci0000:00" / place)
    rig.place({1: 3})
    return rig


def facts(rig: GpuRig) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return attributes and capacity of all devices, by id."""
    devices = found(rig.plugin(mig_strategy="mixed"))
    return {one: (dict(it.attributes), dict(it.capacity)) for one, it in devices.items()}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("device.driver == 'VENDOR' && THEIRS.type == 'gpu'", "a100 gh200"),
        ("device.driver == 'VENDOR' && THEIRS.type == 'mig'", "1g 2g"),
        ("THEIRS.productName.lowerAscii().matches('^.*a100.*$')", "a100 1g 2g"),
        ("THEIRS.productName.matches('GH200') && THEIRS.brand == 'Nvidia'", "gh200"),
        ("THEIRS.brand == 'Tesla'", "a100"),
        ("THEIRS.architecture == 'Hopper'", "gh200"),
        ("THEIRS.architecture == 'Ampere'", "a100 1g 2g"),
        ("THEIRS.type == 'mig' && THEIRS.profile == '1g.5gb'", "1g"),
        (f"THEIRS.type == 'mig' && THEIRS.parentUUID == '{FakeGpu(1).uuid}'", "1g 2g"),
        (f"THEIRS.uuid == '{NAMES['gh200']}' || THEIRS.uuid == '{NAMES['1g']}'", "gh200 1g"),
        ('AMOUNTS.memory.isGreaterThan(quantity("39Gi"))', "a100 gh200"),
        ('AMOUNTS.memory.compareTo(quantity("40Gi")) == 0', "a100"),
        ('AMOUNTS.memory.compareTo(quantity("79Gi")) >= 0', "gh200"),
        ('THEIRS.type == "mig" && AMOUNTS.multiprocessors.isLessThan(quantity("20"))', "1g"),
        (
            """THEIRS.type == 'mig' && AMOUNTS.multiprocessors.isGreaterThan(quantity("10"))
            &&
            AMOUNTS.memory.isGreaterThan(quantity("8Gi"))
            """,
            "2g",
        ),
        ("THEIRS.cudaComputeCapability.isGreaterThan(semver('8.6.0'))", "gh200"),
        ("THEIRS.cudaComputeCapability.major() == 8", "a100 1g 2g"),
        ("THEIRS.driverVersion.compareTo(semver('580.95.5')) == 0", "a100 1g 2g gh200"),
        ("THEIRS.cudaDriverVersion.isLessThan(semver('13.0.1'))", "a100 1g 2g gh200"),
        ("THEIRS.type == 'gpu' && (THEIRS.index == 0 || THEIRS.index == 2)", "a100 gh200"),
        ("THEIRS.type == 'gpu' && THEIRS.minor in [2, 3]", "gh200"),
        ("has(THEIRS.addressingMode) && THEIRS.addressingMode == 'ATS'", "gh200"),
        ("STANDARD.pciBusID == '0000:02:00.0'", "1g 2g"),
        ("has(STANDARD.pcieRoot) && STANDARD.pcieRoot == 'pci0000:00'", "1g 2g"),
        ("has(STANDARD.numaNode) && STANDARD.numaNode == 3", "1g 2g"),
        ("has(THEIRS.nvlinkPeers) && THEIRS.nvlinkPeers == 1", "a100"),
        ("THEIRS.memory == '40Gi' && THEIRS.model == 'NVIDIA A100-SXM4-40GB'", "a100"),
    ],
)
def test_a_selector_for_nvidias_driver_chooses_the_same(
    fleet: GpuRig, expression: str, expected: str
) -> None:
    devices = fleet.plugin(mig_strategy="mixed").discover()
    among = candidates(devices, DRIVER, fleet.roots.sys)
    assert {NAMES[name] for name in expected.split()} == chosen(among, expression)


def test_the_shipped_class_selects_gpus(fleet: GpuRig) -> None:
    devices = [*fleet.plugin().discover()]
    (selector,) = shipped("gpu").values()
    assert {one.id for one in devices} == chosen(candidates(devices, DRIVER), selector)


def test_a_mig_device_has_the_capacities_of_nvidias_driver(fleet: GpuRig) -> None:
    names = "memory multiprocessors copyEngines decoders encoders jpegEngines ofaEngines"
    expected = [4960 << 20, 14, 1, 0, 0, 0, 0]
    assert dict(zip(names.split(), expected, strict=True)) == facts(fleet)[NAMES["1g"]][1]
    assert {"memory": 40 << 30, "cores": 6912} == facts(fleet)[NAMES["a100"]][1]


def test_what_changes_all_the_time_is_not_in_slices(fleet: GpuRig) -> None:
    plugin = fleet.plugin(mig_strategy="mixed")
    before = candidates(plugin.discover(), DRIVER)
    fleet.fake.change(0, temperature=90, used=30000, utilization=99, power=390000, energy=10**9)
    fleet.fake.change(0, clock=1410, throttle=0x8, corrected=7, replays=3)
    fleet.fake.change(2, migs=(), state="lost")
    assert before == candidates(plugin.discover(), DRIVER), "nor do facts of a lost GPU go"


QUESTIONS = {
    "nvmlDeviceGetBrand": {"brand"},
    "nvmlDeviceGetNumGpuCores": {"cores"},
    "nvmlDeviceGetAddressingMode": {"addressingMode"},
    "nvmlDeviceGetCudaComputeCapability": {"cudaComputeCapability", "architecture"},
    "nvmlSystemGetDriverVersion": {"driverVersion"},
    "nvmlSystemGetCudaDriverVersion_v2": {"cudaDriverVersion"},
    "nvmlDeviceGetAttributes_v2": {"multiprocessors", "copyEngines", "decoders", "encoders"}
    | {"jpegEngines", "ofaEngines"},
}


@pytest.mark.parametrize("function", QUESTIONS)
def test_what_the_driver_does_not_say_is_absent(fleet: GpuRig, function: str) -> None:
    def names() -> set[str]:
        return {name for each in facts(fleet).values() for maps in each for name in maps}

    before = names()
    fleet.fake.fail(function, pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert QUESTIONS[function] == before - names()


def test_a_fact_that_was_known_stays_when_the_driver_is_silent(fleet: GpuRig) -> None:
    plugin = fleet.plugin()
    before = candidates(plugin.discover(), DRIVER)
    for function in QUESTIONS:
        fleet.fake.fail(function, pynvml.NVML_ERROR_UNKNOWN)
    assert before == candidates(plugin.discover(), DRIVER)


def test_peers_are_absent_unless_all_links_are_known() -> None:
    one, other = Gpu(0, "GPU-0", pci="0000:01:00.0"), Gpu(1, "GPU-1")
    for snapshot, expected in (
        (Snapshot((one,)), 0),
        (Snapshot((one, other)), None),
        (Snapshot((one, other), {("GPU-0", "GPU-1"): Link(nvlinks=2)}), 1),
        (Snapshot((one, other), {("GPU-0", "GPU-1"): Link()}), 0),
    ):
        (device,) = describe([Unit(GPU, one)], {"GPU-0": dp.Health()}, {}, {}, snapshot)
        assert expected == device.attributes.get("nvlinkPeers")


def test_an_amount_that_cannot_be_leaves_the_device_valid() -> None:
    sizes = {"MIG-0": 1 << 63, "MIG-1": 1 << 30}
    migs = [Mig(one, 0, 0, 0, memory=size, engines={"copy": 1}) for one, size in sizes.items()]
    units = [Unit(GPU, Gpu(0, "GPU-0", memory=1 << 64)), *(Unit(GPU, Gpu(0, "G"), m) for m in migs)]
    health = {unit.id: dp.Health() for unit in units}
    devices = describe(units, health, {}, {}, Snapshot())
    assert ["", "", ""] == [device_problem(device) for device in devices]
    assert [set(), set(), {"memory", "multiprocessors", "copyEngines"}] == [
        {*device.capacity} for device in devices
    ]


def test_a_mig_device_of_which_all_is_known_has_room_in_slices(fleet: GpuRig) -> None:
    engines = dict.fromkeys(("copy", "decoder", "encoder", "jpeg", "ofa"), 1)
    mig = Mig("MIG-0", 0, 1, 1, "1g.5gb", 1 << 30, 1, 1, 14, (0, 1), engines)
    gpu = Gpu(1, "GPU-0", "x" * 64, 0, FakeGpu(1).pci, 3, 1 << 40, (9, 0), brand="Nvidia")
    gpu = replace(gpu, addressing="ATS", license=License(licensed=True))
    snapshot = Snapshot((gpu,), driver="580.95.05", cuda=(13, 0))
    for unit in (Unit(GPU, gpu, mig), Unit(GPU, gpu, mig, replica=0, replicas=2)):
        assert candidates(
            describe([unit], {unit.id: dp.Health()}, {}, {}, snapshot), DRIVER, fleet.roots.sys
        )


def test_shares_have_the_facts_of_their_device_once_in_memory() -> None:
    gpu = Gpu(0, "GPU-0", "T4", memory=1 << 30)
    units = [Unit(GPU, gpu, replica=number, replicas=3) for number in range(3)]
    first, *others = describe(units, {one.id: dp.Health() for one in units}, {}, {}, Snapshot())
    assert ["GPU-0::1", "GPU-0::2"] == [one.id for one in others]
    for one in others:
        assert (first.attributes, first.capacity) == (one.attributes, one.capacity)
        assert (True, True) == (first.attributes is one.attributes, first.capacity is one.capacity)


@pytest.mark.parametrize(("brand", "expected"), [(0, None), (15, "GeForceRTX"), (99, None)])
def test_a_brand_without_a_name_is_absent(rig: GpuRig, brand: int, expected: str | None) -> None:
    ((attributes, _),) = facts(rig.has(Fleet.of(1, brand=brand))).values()
    assert expected == attributes.get("brand")
