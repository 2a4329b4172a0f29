"""What the fake NVIDIA driver answers, asked through the real pynvml, and how it fails.

What the plugin asks for and all its tests see is not asked for again.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpu import fake_library
from gpu.fake_library import SOURCES
from gpu.fake_nvml import FakeGpu, FakeMig, FakeNvml, Fleet
from patience import PATIENCE, eventually

Open = Callable[[Fleet | str], FakeNvml]
GIB = 1 << 30
XID = pynvml.nvmlEventTypeXidCriticalError


def code(function: Callable[..., object], *arguments: object) -> int:
    """Return the error that a call gives, 0 if none."""
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def gpu(index: int = 0) -> Any:
    """Return the handle of a GPU."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


@pytest.fixture
def opened(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return what initializes pynvml with a fleet."""
    fakes: list[FakeNvml] = []

    def open_fleet(fleet: Fleet | str) -> FakeNvml:
        fake = FakeNvml(tmp_path / f"nvml{len(fakes)}", fleet if isinstance(fleet, Fleet) else None)
        if isinstance(fleet, str):
            fake.write(fleet)
        fake.load(nvml_library, monkeypatch)
        pynvml.nvmlInit()
        fakes.append(fake)
        return fake

    yield open_fleet
    for _ in fakes:
        pynvml.nvmlShutdown()


def values(structure: Any) -> dict[str, Any]:
    return {name: getattr(structure, name) for name, *_ in structure._fields_}


def test_the_system_has_versions(opened: Open) -> None:
    opened("driver version=535.183.01 cuda=12.2")
    found = pynvml.nvmlSystemGetNVMLVersion(), pynvml.nvmlSystemGetCudaDriverVersion()
    assert ("12.535.183.01", 12020) == found


def test_a_gpu_is_found_by_index_uuid_and_address(opened: Open) -> None:
    own = {"pci": "0001:3b:00.0", "pci_id": "0x1db510de", "minor": 9}
    fake = opened(Fleet((FakeGpu(3), FakeGpu(5, values=own))))
    assert 2 == pynvml.nvmlDeviceGetCount()
    assert [gpu.uuid for gpu in fake.fleet.gpus] == [
        pynvml.nvmlDeviceGetUUID(gpu(i)) for i in (0, 1)
    ]
    for handle in (
        gpu(1),
        pynvml.nvmlDeviceGetHandleByUUID(fake.fleet.gpus[1].uuid),
        pynvml.nvmlDeviceGetHandleByPciBusId("00000001:3B:00.0"),
    ):
        assert 1 == pynvml.nvmlDeviceGetIndex(handle)
        assert 9 == pynvml.nvmlDeviceGetMinorNumber(handle)
    assert 3 == pynvml.nvmlDeviceGetMinorNumber(gpu(0))
    assert fake.fleet.gpus[0].pci.upper() == pynvml.nvmlDeviceGetPciInfo(gpu(0)).busIdLegacy
    pci = pynvml.nvmlDeviceGetPciInfo(gpu(1))
    assert ("00000001:3B:00.0", 0x1DB510DE) == (pci.busId, pci.pciDeviceId)
    assert (1, 0x3B, 0) == (pci.domain, pci.bus, pci.device)


def test_what_is_not_there_is_not_found(opened: Open) -> None:
    opened(Fleet.of(1))
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(gpu, 1)
    assert pynvml.NVML_ERROR_NOT_FOUND == code(pynvml.nvmlDeviceGetHandleByUUID, "GPU-none")
    find = pynvml.nvmlDeviceGetHandleByPciBusId
    assert pynvml.NVML_ERROR_NOT_FOUND == code(find, "0000:ff:00.0")
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(find, "somewhere")
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(pynvml.nvmlDeviceGetUUID, None)
    assert "Invalid Argument" == pynvml.nvmlErrorString(2)
    assert "Unknown Error" == pynvml.nvmlErrorString(12345)


def test_a_structure_of_another_version_is_refused(opened: Open) -> None:
    opened(Fleet.of(1, fabric="completed"))
    fabric = pynvml.c_nvmlGpuFabricInfo_v2_t()
    fabric.version = 1
    refused = code(pynvml.nvmlDeviceGetGpuFabricInfoV, gpu(), pynvml.byref(fabric))
    assert pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH == refused


INVALID, UNSUPPORTED = pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported
FOUR = [(kind, total) for kind in (0, 1) for total in (0, 1)]
INSUFFICIENT = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
MEMORY = {"total": 32 * GIB, "free": 31 * GIB, "used": GIB}
MEMORY_V2 = {"version": pynvml.nvmlMemory_v2, "reserved": 0}
PAGES = [
    {"address": 0x1000, "timestamp": 1700000000000000},
    {"address": 0x2000, "timestamp": 1700000000000001},
]
OLDER = """gpu 0 name="Tesla V100" brand=2 memory=32GiB used=1GiB compute=7.0 addressing=hmm \
numa-id=1 retired-single=1 retired-double=2 retired-pending=yes
"""
NEWER = """gpu 0 power-limit=400000 throttle=0x48 clock=1400 memory-clock=1215 max-clock=1410 \
max-memory-clock=1593 corrected=1 uncorrected=2 corrected-total=3 uncorrected-total=4
"""
ANSWERS: dict[str, dict[tuple[Any, ...], object]] = {
    OLDER: {
        ("Name",): "Tesla V100",
        ("Brand",): pynvml.NVML_BRAND_TESLA,
        ("MemoryInfo",): MEMORY,
        ("MemoryInfo", pynvml.nvmlMemory_v2): MEMORY | MEMORY_V2,
        ("MemoryInfo", 1): pynvml.NVMLError_ArgumentVersionMismatch,
        ("CudaComputeCapability",): (7, 0),
        ("AddressingMode",): pynvml.NVML_DEVICE_ADDRESSING_MODE_HMM,
        ("NumaNodeId",): 1,
        ("RetiredPages", 0): [0x1000],
        ("RetiredPages", 2): INVALID,
        ("RetiredPages_v2", 1): PAGES,
        ("RetiredPagesPendingStatus",): 1,
        ("RemappedRows",): UNSUPPORTED,
        ("MigMode",): UNSUPPORTED,
    },
    NEWER: {
        ("Temperature", 9): INVALID,
        ("TemperatureV", 9): INVALID,
        ("EnforcedPowerLimit",): 400000,
        ("CurrentClocksThrottleReasons",): 0x48,
        ("ClockInfo", pynvml.NVML_CLOCK_GRAPHICS): 1400,
        ("ClockInfo", pynvml.NVML_CLOCK_MEM): 1215,
        ("ClockInfo", 4): INVALID,
        ("MaxClockInfo", pynvml.NVML_CLOCK_GRAPHICS): 1410,
        ("MaxClockInfo", pynvml.NVML_CLOCK_MEM): 1593,
        ("EccMode",): [1, 1],
        **{("TotalEccErrors", kind, total): 1 + kind + 2 * total for kind, total in FOUR},
        ("TotalEccErrors", 2, 0): INVALID,
        ("MemoryErrorCounter", 0, 1, 1): 0,
        ("MemoryErrorCounter", 0, 1, pynvml.NVML_MEMORY_LOCATION_DRAM): 3,
        ("MemoryErrorCounter", 0, 0, 8): INVALID,
        ("RetiredPages", 0): UNSUPPORTED,
        ("MigMode",): [0, 0],
        ("MaxMigDeviceCount",): 0,
        ("MigDeviceHandleByIndex", 0): UNSUPPORTED,
        ("GpuInstanceById", 0): UNSUPPORTED,
        ("Attributes",): UNSUPPORTED,
        ("GpuInstanceId",): UNSUPPORTED,
        ("ComputeInstanceId",): UNSUPPORTED,
        ("DeviceHandleFromMigDeviceHandle",): INVALID,
    },
    "gpu 0 mig=on ecc=off": {
        ("UtilizationRates",): UNSUPPORTED,
        ("EccMode",): [0, 0],
        ("TotalEccErrors", 0, 0): UNSUPPORTED,
    },
}


def ask(call: str, *arguments: object) -> object:
    """Return what the GPU answers: a value, the values of a structure, or the kind of an error."""
    try:
        found = getattr(pynvml, f"nvmlDeviceGet{call}")(gpu(), *arguments)
    except pynvml.NVMLError as error:
        return type(error)
    return values(found) if hasattr(found, "_fields_") else found


@pytest.mark.parametrize("fleet", ANSWERS, ids=["older", "newer", "divided"])
def test_a_gpu_answers_what_the_file_says(opened: Open, fleet: str) -> None:
    opened(fleet)
    assert ANSWERS[fleet] == {call: ask(*call) for call in ANSWERS[fleet]}


def test_a_mig_device_has_a_handle_at_its_index_and_its_gpu_as_the_parent(opened: Open) -> None:
    mig = FakeMig(5, "2g.10gb", values={"memory": 9856, "used": 56, "index": 2})
    fake = opened(Fleet.of(2, migs=(mig,), name="NVIDIA A100"))
    find = pynvml.nvmlDeviceGetMigDeviceHandleByIndex
    missing, invalid = pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT
    expected = [missing, missing, 0, *[missing] * 4, invalid]
    assert expected == [code(find, gpu(1), index) for index in range(8)]
    handle, uuid = find(gpu(1), 2), mig.uuid(fake.fleet.gpus[1].slot)
    assert uuid == pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    assert 2 == pynvml.nvmlDeviceGetIndex(handle)
    assert 1 == pynvml.nvmlDeviceIsMigDeviceHandle(handle).value
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    assert fake.fleet.gpus[1].uuid == pynvml.nvmlDeviceGetUUID(parent)
    assert 9800 << 20 == pynvml.nvmlDeviceGetMemoryInfo(handle).free
    assert pynvml.NVML_ERROR_NOT_SUPPORTED == code(pynvml.nvmlDeviceGetPowerUsage, handle)


def test_attributes_follow_from_the_profile_and_can_be_set(opened: Open) -> None:
    opened(
        "gpu 0 memory=40GiB\nmig 0 gi=1 profile=1c.3g.20gb\n"
        "mig 0 gi=2 profile=1g.10gb+me memory=9856MiB multiprocessors=16 decoder=2 encoder=3 copy=1"
    )
    expected = {
        "multiprocessorCount": (14, 16),
        "sharedCopyEngineCount": (3, 1),
        "sharedDecoderCount": (1, 2),
        "sharedEncoderCount": (0, 3),
        "sharedJpegCount": (0, 1),
        "sharedOfaCount": (0, 1),
        "gpuInstanceSliceCount": (3, 1),
        "computeInstanceSliceCount": (1, 1),
        "memorySizeMB": (19840, 9856),
    }
    first, second = (
        values(pynvml.nvmlDeviceGetAttributes(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), i)))
        for i in (0, 1)
    )
    assert expected == {name: (first[name], second[name]) for name in first}


def test_instances_have_profiles_and_places(opened: Open) -> None:
    opened(
        "gpu 0 memory=80GiB\nmig 0 gi=1 profile=1g.10gb\n"
        "mig 0 gi=2 ci=0 profile=1c.3g.40gb\nmig 0 gi=2 ci=1 profile=2c.3g.40gb"
    )
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu(), 2)
    found = pynvml.nvmlGpuInstanceGetInfo(instance)
    assert pynvml.nvmlDeviceGetUUID(gpu()) == pynvml.nvmlDeviceGetUUID(found.device)
    assert (2, 1, 4) == (found.id, found.placement.start, found.placement.size)
    ask = pynvml.nvmlDeviceGetGpuInstanceProfileInfo
    kind = pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE
    first, second = (values(ask(gpu(), kind, version)) for version in (1, 2))
    about = (first["id"], first["sliceCount"], first["memorySizeMB"])
    assert (found.profileId, 3, 39680) == about
    assert {**first, "version": 0x02000098, "name": "MIG 3g.40gb"} == second
    compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 1)
    found = pynvml.nvmlComputeInstanceGetInfo(compute)
    assert (1, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE) == (found.id, found.profileId)
    assert 2 == pynvml.nvmlGpuInstanceGetInfo(found.gpuInstance).id
    missing = pynvml.NVML_ERROR_NOT_FOUND
    assert missing == code(pynvml.nvmlDeviceGetGpuInstanceById, gpu(), 9)
    assert missing == code(pynvml.nvmlGpuInstanceGetComputeInstanceById, instance, 9)
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(pynvml.nvmlGpuInstanceGetInfo, compute)


@pytest.mark.parametrize("version", [1, 2])
def test_profiles_are_those_that_the_gpu_can_have(opened: Open, version: int) -> None:
    opened("gpu 0 memory=40GiB\nmig 0 gi=1 profile=2g.10gb-me")
    ask = pynvml.nvmlDeviceGetGpuInstanceProfileInfo
    count = pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT
    known = [i for i in range(count) if code(ask, gpu(), i, version) == 0]
    assert [0, 1, 2, 3, 4, 7, 9, pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME] == known
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(ask, gpu(), count, version)
    assert 8 == len({ask(gpu(), i, version).id for i in known})
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu(), 1)
    errors = [code(ask, instance, profile, 0, version) for profile in range(10)]
    assert [0, 0, *[pynvml.NVML_ERROR_NOT_SUPPORTED] * 7, 2] == errors
    assert (1, 1) == (ask(instance, 1, 0, version).id, ask(instance, 1, 0, version).instanceCount)


def test_compute_profiles_have_names(opened: Open) -> None:
    opened("gpu 0\nmig 0 gi=1 profile=1c.2g.10gb")
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu(), 1)
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    assert ["MIG 1c.2g.10gb", "MIG 2g.10gb"] == [ask(instance, i, 0).name for i in (0, 1)]


Placement = pynvml.c_nvmlGpuInstancePlacement_t


def create(profile: int, start: int, size: int) -> Any:
    """Make a GPU instance of a profile by its number, there."""
    info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), profile)
    place = pynvml.byref(Placement(start, size))
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu(), info.id, place)


@pytest.mark.parametrize(
    ("fleet", "profile", "place", "expected"),
    [
        ("gpu 0 mig=on", 2, (4, 4), 0),
        ("gpu 0 mig=on", 2, (2, 4), pynvml.NVML_ERROR_INVALID_ARGUMENT),
        ("gpu 0 mig=on", 0, (7, 1), pynvml.NVML_ERROR_INVALID_ARGUMENT),
        ("gpu 0 mig=off", 2, (4, 4), pynvml.NVML_ERROR_NOT_SUPPORTED),
        ("gpu 0 mig=on virtualization=vgpu", 2, (4, 4), pynvml.NVML_ERROR_NOT_SUPPORTED),
        ("gpu 0\nmig 0 gi=9 profile=1g.5gb start=7", 2, (4, 4), INSUFFICIENT),
        ("gpu 0\nmig 0 gi=9 profile=1g.5gb+me start=0", 7, (1, 1), INSUFFICIENT),
        ("gpu 0\nmig 0 gi=9 profile=1g.5gb start=0", 0, (1, 1), 0),
    ],
)
def test_an_instance_needs_a_possible_and_free_place(
    opened: Open, fleet: str, profile: int, place: tuple[int, int], expected: int
) -> None:
    opened(fleet)
    assert expected == code(create, profile, *place)


def test_what_is_made_outlives_processes_and_is_destroyed_from_the_inside(opened: Open) -> None:
    fake = opened("gpu 0 mig=on")
    instance = create(1, 2, 2)
    assert [] == mig_devices()
    make = pynvml.nvmlGpuInstanceCreateComputeInstance
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(make, instance, 7)
    compute = make(instance, 0)
    assert INSUFFICIENT == code(make, instance, 1)
    assert ["NVIDIA A100-SXM4-40GB MIG 1c.2g.10gb"] == mig_devices()
    fake.write("gpu 0 mig=on temperature=40")  # what was made is not in it
    assert pynvml.NVML_ERROR_IN_USE == code(pynvml.nvmlGpuInstanceDestroy, instance)
    fake.by_hand("process 0 pid=1 gi=1 ci=0")
    assert pynvml.NVML_ERROR_IN_USE == code(pynvml.nvmlComputeInstanceDestroy, compute)
    fake.journal.write_text("\n".join([*fake.made()[:-1], ""]))
    pynvml.nvmlComputeInstanceDestroy(compute)
    assert pynvml.NVML_ERROR_NOT_FOUND == code(pynvml.nvmlComputeInstanceDestroy, compute)
    pynvml.nvmlGpuInstanceDestroy(instance)
    assert pynvml.NVML_ERROR_NOT_FOUND == code(pynvml.nvmlGpuInstanceDestroy, instance)
    fake.reboot()
    assert [] == fake.made()


def mig_devices() -> list[str]:
    found = []
    for index in range(7):
        with contextlib.suppress(pynvml.NVMLError):
            one = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), index)
            found.append(pynvml.nvmlDeviceGetName(one))
    return found


@pytest.mark.parametrize(
    ("fleet", "status", "after"),
    [
        ("gpu 0 compute=9.0", 0, [1, 1]),
        ("gpu 0 compute=8.0", pynvml.NVML_ERROR_RESET_REQUIRED, [0, 1]),
        ("gpu 0 compute=9.0 busy=yes", pynvml.NVML_ERROR_IN_USE, [0, 1]),
        ("gpu 0 compute=9.0\nprocess 0 pid=1", pynvml.NVML_ERROR_IN_USE, [0, 1]),
        ("gpu 0 compute=9.0 mig=on", 0, [1, 1]),
    ],
)
def test_a_mig_mode_is_switched_or_pending(
    opened: Open, fleet: str, status: int, after: list[int]
) -> None:
    opened(fleet)
    assert status == pynvml.nvmlDeviceSetMigMode(gpu(), 1)
    assert after == pynvml.nvmlDeviceGetMigMode(gpu())
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(pynvml.nvmlDeviceSetMigMode, gpu(), 2)


def test_paths_are_by_numa_node_unless_told(opened: Open) -> None:
    opened("gpu 0-2 numa=0\ngpu 3 numa=1\npath 0 1 single")
    levels = [pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(i)) for i in range(4)]
    assert [
        pynvml.NVML_TOPOLOGY_INTERNAL,
        pynvml.NVML_TOPOLOGY_SINGLE,
        pynvml.NVML_TOPOLOGY_NODE,
        pynvml.NVML_TOPOLOGY_SYSTEM,
    ] == levels
    assert pynvml.NVML_TOPOLOGY_SINGLE == pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu(1), gpu(0))


def test_links_lead_to_gpus_and_switches(opened: Open) -> None:
    opened("gpu 0-2\nlink 0 2 count=2\nlink 0 1 active=no\nswitch 0")
    remote = [pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), i).busId for i in range(4)]
    addresses = ["00000000:03:00.0"] * 2 + ["00000000:02:00.0", "00000000:C3:00.0"]
    assert addresses == remote
    assert [1, 1, 0, 1] == [pynvml.nvmlDeviceGetNvLinkState(gpu(0), i) for i in range(4)]
    kinds = [pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu(0), i) for i in (0, 3)]
    assert [
        pynvml.NVML_NVLINK_DEVICE_TYPE_GPU,
        pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH,
    ] == kinds
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(pynvml.nvmlDeviceGetNvLinkState, gpu(0), 4)
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(pynvml.nvmlDeviceGetNvLinkState, gpu(0), 36)
    opened("gpu 0")
    assert pynvml.NVML_ERROR_NOT_SUPPORTED == code(pynvml.nvmlDeviceGetNvLinkState, gpu(0), 0)


@pytest.mark.parametrize("line", ["driver", "gpu", "mig", "fault", "event", "process"])
def test_the_reference_tells_all_keys(line: str) -> None:
    table = (SOURCES / "keys.c").read_text().partition(f"{line.upper()}_KEYS[] = {{\n")[2]
    keys = re.findall(r'^    \{"([a-z-]+)"', table.partition("{0}};")[0], re.MULTILINE)
    page = (SOURCES / "fleet.txt").read_text().partition(f"| Key of `{line}` |")[2]
    told = [row.split(" | ")[0] for row in page.partition("\n\n")[0].splitlines()[2:]]
    assert sorted(keys) == sorted(re.findall(r"`([a-z-]+)`", " ".join(told)))


@pytest.mark.slow
def test_the_command_in_the_readme_shows_what_it_says(tmp_path: Path) -> None:
    folder = shutil.copytree(SOURCES, tmp_path / "nvml", ignore=shutil.ignore_patterns("dist"))
    block = (SOURCES / "README.md").read_text().partition("```console\n")[2].partition("```")[0]
    lines = block.splitlines(keepends=True)
    script = "".join(line[2:] for line in lines if line.startswith("$ "))
    expected = "".join(line for line in lines if not line.startswith("$ "))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    shell = ["sh", "-e"]
    done = subprocess.run(
        shell, input=script, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert expected == done.stdout


# What can go wrong while a program runs.


@pytest.fixture
def fake(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two GPUs, and pynvml that will find them at the next init."""
    fake = FakeNvml(tmp_path / "nvml", Fleet.of(2))
    fake.load(nvml_library, monkeypatch)
    return fake


@pytest.fixture
def nvml(fake: FakeNvml) -> Iterator[FakeNvml]:
    """The same, initialized."""
    pynvml.nvmlInit()
    yield fake
    fake.mend()
    pynvml.nvmlShutdown()


def event_set(*indices: int, kinds: int = XID) -> Any:
    created = pynvml.nvmlEventSetCreate()
    for index in indices:
        pynvml.nvmlDeviceRegisterEvents(gpu(index), kinds, created)
    return created


def wait(events: Any, milliseconds: int = 0) -> tuple[str, int, int]:
    event = pynvml.nvmlEventSetWait_v2(events, milliseconds)
    return pynvml.nvmlDeviceGetUUID(event.device), event.eventType, event.eventData


def is_silent(events: Any) -> bool:
    return code(wait, events) == int(pynvml.NVML_ERROR_TIMEOUT)


def test_nothing_can_be_asked_before_init_and_after_shutdown(fake: FakeNvml) -> None:
    uninitialized = pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    handle = gpu()
    pynvml.nvmlShutdown()
    assert uninitialized == code(pynvml.nvmlShutdown)
    assert uninitialized == code(pynvml.nvmlDeviceGetCount)
    assert uninitialized == code(pynvml.nvmlDeviceGetUUID, handle)
    assert 2 == fake.calls()["nvmlInitWithFlags"]


@pytest.mark.usefixtures("nvml")
def test_a_shutdown_ends_event_sets() -> None:
    events = event_set(0)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(wait, events)
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(pynvml.nvmlEventSetFree, events)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "gpu 0\nbogus",
            '2: "bogus" is none of driver, gpu, mig, instance, gone, link, switch, path, fault',
        ),
        ("gpu", "1: gpu needs a GPU such as 0, 0-3 or all"),
        ("gpu x", '1: "x" is no GPU such as 0, 0-3 or all'),
        ("gpu 3-1", '1: "3-1" is no GPU such as 0, 0-3 or all'),
        ("gpu 0 colour=red", '1: gpu has no key "colour"'),
        ("gpu 0 minor", '1: "minor" is not key=value'),
        ("gpu 0 minor=one", "1: one is no value of minor"),
        ("gpu 0 memory=1TB", "1: 1TB is no value of memory"),
        ("gpu 0 state=ill", "1: ill is no value of state"),
        (f"gpu 0 name={'x' * 96}", f"1: {'x' * 96} is no value of name"),
        ('gpu 0 name="x', "1: a quote is not closed"),
        ("gpu 0 pci=here", " gpu 0: here is no PCI address such as 0000:3b:00.0"),
        ("gpu 0-1 uuid=GPU-1", " gpu 0 and gpu 1 have the same uuid or pci"),
        ("gpu 0 memory=1GiB used=2GiB", " gpu 0 uses more memory than it has"),
        ("mig 0 gi=1", "1: there is no gpu 0 above this line"),
        ("gpu 0\nmig 0 profile=1g.5gb", "2: mig needs gi=N, and ci=N if not 0"),
        ("gpu 0\nmig 0 gi=1 profile=5g.5gb", '2: "5g.5gb" is no profile such as 1g.5gb'),
        ("gpu 0\nmig 0 gi=1 profile=1g.5gb+x", '2: "1g.5gb+x" is no profile such as 1g.5gb'),
        ("gpu 0\nmig 0,0 gi=1 profile=1g.5gb\nmig 0 gi=1 profile=1g.5gb", "3: gpu 0 has this MIG"),
        ("gpu 0-1\nlink 0 1 count=37", "2: gpu 0 has more than 36 NVLinks"),
        ("gpu 0-1\npath 0 1 near", "2: path needs two GPUs and one of internal, single"),
        ("fault nvmlNothing rc=1", "1: fault needs init, wait, all or a function"),
        ("event 0 xid", "1: event needs a number from 1 on, and xid, sbe, dbe or mig"),
    ],
)
def test_a_malformed_file_fails_init_and_is_told_once(
    fake: FakeNvml, capfd: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    fake.write(text)
    assert pynvml.NVML_ERROR_UNKNOWN == code(pynvml.nvmlInit)
    assert pynvml.NVML_ERROR_UNKNOWN == code(pynvml.nvmlInit)
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(f"fake nvml: {fake.path}:{problem}")
    fake.path.unlink()
    assert pynvml.NVML_ERROR_UNKNOWN == code(pynvml.nvmlInit)
    missing = f"fake nvml: {fake.path}: No such file or directory\n"
    assert missing == capfd.readouterr().err


def test_a_file_that_becomes_malformed_changes_nothing(
    nvml: FakeNvml, capfd: pytest.CaptureFixture[str]
) -> None:
    assert 2 == pynvml.nvmlDeviceGetCount()
    nvml.write("gpu 0\n gpu 1 minor=one")
    assert [2, 2] == [pynvml.nvmlDeviceGetCount() for _ in range(2)]
    assert f"fake nvml: {nvml.path}:2: one is no value of minor\n" == capfd.readouterr().err


def test_an_event_is_told_once(nvml: FakeNvml) -> None:
    nvml.xid(0, 13)
    events, others = event_set(0, 1), event_set(0)
    assert is_silent(events)
    nvml.xid(1, 79)
    nvml.xid(0, 48, gi=3, ci=0)
    assert (nvml.fleet.gpus[1].uuid, XID, 79) == wait(events)
    event = pynvml.nvmlEventSetWait_v2(events, 0)
    assert (48, 3, 0) == (event.eventData, event.gpuInstanceId, event.computeInstanceId)
    nvml.change(0, temperature=90)
    assert is_silent(events)
    assert (nvml.fleet.gpus[0].uuid, XID, 48) == wait(others)
    assert is_silent(others)
    pynvml.nvmlEventSetFree(others)
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(wait, others)


def test_only_what_was_asked_for_is_told(nvml: FakeNvml) -> None:
    double = pynvml.nvmlEventTypeDoubleBitEccError
    events = event_set(0, kinds=double | pynvml.nvmlEventMigConfigChange)
    nvml.xid(0, 79)
    nvml.sbe(0)
    nvml.dbe(1)
    nvml.dbe(0)
    nvml.mig_changed(0)
    assert double == wait(events)[1]
    assert pynvml.nvmlEventMigConfigChange == wait(events)[1]
    assert is_silent(events)
    pynvml.nvmlDeviceRegisterEvents(gpu(0), pynvml.nvmlEventTypeSingleBitEccError, events)
    nvml.sbe(0)
    assert pynvml.nvmlEventTypeSingleBitEccError == wait(events)[1]


def test_events_can_be_unsupported(nvml: FakeNvml) -> None:
    nvml.change(0, events="no")
    nvml.change(1, compute="7.0", ecc="off")
    unsupported = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert unsupported == code(pynvml.nvmlDeviceGetSupportedEventTypes, gpu(0))
    assert unsupported == code(event_set, 0)
    assert XID == pynvml.nvmlDeviceGetSupportedEventTypes(gpu(1))
    nvml.change(1, compute="8.0", ecc="on")
    both = pynvml.nvmlEventTypeSingleBitEccError | pynvml.nvmlEventTypeDoubleBitEccError
    expected = XID | both | pynvml.nvmlEventMigConfigChange
    assert expected == pynvml.nvmlDeviceGetSupportedEventTypes(gpu(1))


@pytest.mark.usefixtures("nvml")
def test_a_wait_ends_after_its_time() -> None:
    events, start = event_set(0), time.monotonic()
    assert pynvml.NVML_ERROR_TIMEOUT == code(wait, events, 50)
    assert 0.045 <= time.monotonic() - start


def waiting(nvml: FakeNvml, pool: ThreadPoolExecutor, events: Any) -> "Future[Any]":
    """Start a long wait in another thread and return when it has begun."""
    before = nvml.calls()["nvmlEventSetWait_v2"]
    future = pool.submit(wait, events, 60_000)
    eventually(lambda: nvml.calls()["nvmlEventSetWait_v2"] > before, "the wait to begin")
    return future


def test_a_wait_ends_when_its_set_is_freed(nvml: FakeNvml) -> None:
    events = event_set(0)
    with ThreadPoolExecutor(1) as pool:
        future = waiting(nvml, pool, events)
        pynvml.nvmlEventSetFree(events)
        assert isinstance(future.exception(5), pynvml.NVMLError_InvalidArgument)


def test_calls_of_many_threads_are_all_counted(nvml: FakeNvml) -> None:
    handles, start, turn_of_one = [gpu(0), gpu(1)], threading.Barrier(4), threading.Lock()
    before = nvml.calls()["nvmlDeviceGetName"]

    def call_often() -> None:
        start.wait(PATIENCE)
        for turn in range(200):
            pynvml.nvmlDeviceGetName(handles[turn % 2])
            if turn % 20 == 0:
                with turn_of_one:
                    nvml.change(0, temperature=turn)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(call_often) for _ in range(4)]:
            future.result(PATIENCE)
    assert 800 == nvml.calls()["nvmlDeviceGetName"] - before


def test_tests_are_skipped_on_a_machine_without_a_compiler_but_not_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs a C compiler: install cc"):
        fake_library.build_or_skip(tmp_path / "library")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(RuntimeError, match="needs a C compiler: install cc"):
        fake_library.build_or_skip(tmp_path / "library")


def test_the_library_is_compiled_once(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = nvml_library.stat().st_mtime_ns
    assert nvml_library == fake_library.build(nvml_library.parents[1])
    assert changed == nvml_library.stat().st_mtime_ns
    monkeypatch.setenv("CFLAGS", "-O9 -fno-such-thing")
    with pytest.raises(RuntimeError, match="the fake NVML does not compile"):
        fake_library.build(tmp_path)
