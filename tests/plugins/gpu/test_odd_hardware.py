"""What the driver says rarely, and what it does not say."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.metrics import read_gpu
from deviceplugin_gpu.nvml import api, enumeration, gpu_facts
from deviceplugin_gpu.nvml.api import LibraryMissingError, NvmlError, Session
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_gpu.snapshot import Mig
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.rig import GPU, GpuRig, devices, unhealthy, uuid, uuids
from patience import eventually

WORN, UNMENDED = dp.Health.degraded, "remapping a broken memory row failed: contact support"
PENDING = "a memory row is remapped at the next reset"


@pytest.mark.parametrize(
    ("values", "health"),
    [
        ({"remap_failed": True}, dp.Health.unhealthy(UNMENDED, "remap_failed")),
        ({"remap_pending": True}, WORN(PENDING)),
        ({"banks_used_up": 3}, WORN("memory banks without spare rows: 3")),
        (
            {"remap_pending": True, "banks_used_up": 1},
            WORN(f"{PENDING}; memory banks without spare rows: 1"),
        ),
        (
            {"compute": "7.0", "retired_pending": True},
            WORN("a memory page is retired at the next reset"),
        ),
        ({"compute": "7.0", "retired_single": 20, "retired_double": 39}, dp.Health()),
        (
            {"compute": "7.0", "retired_single": 20, "retired_double": 40},
            WORN("60 memory pages of at most 64 are retired"),
        ),
    ],
)
def test_a_gpu_whose_memory_wears_out_is_degraded_and_one_that_cannot_be_mended_unhealthy(
    rig: GpuRig, values: dict[str, Any], health: dp.Health
) -> None:
    rig.has(Fleet.of(2)).fake.change(1, **values)
    plugin = rig.plugin()
    for _ in range(2):
        found = {one.id: one.health for one in devices(plugin).values()}
        assert {uuid(0): dp.Health(), uuid(1): health} == found
    assert 1 == rig.fake.calls()["nvmlInitWithFlags"]


def test_what_a_driver_does_not_say_of_wear_is_no_wear(rig: GpuRig) -> None:
    rig.has(Fleet.of(1, remap_pending=True, banks_used_up=1))
    for function in ("RemappedRows", "RowRemapperHistogram", "CurrentClocksEventReasons"):
        rig.fake.fail(f"nvmlDeviceGet{function}", 4)
    assert {uuid(0): dp.Health()} == {one.id: one.health for one in devices(rig.plugin()).values()}


def test_a_gpu_that_is_slowed_down_for_long_is_degraded_until_it_is_not(rig: GpuRig) -> None:
    rig.now = 1000.0
    rig.has(Fleet.of(1, throttle=0x48))
    plugin = rig.plugin(recovery_time=timedelta(seconds=60))
    states = why = ""
    for seconds, throttle in (
        *((0, 0x48), (59, 0x48), (1, 0), (1, 0x48), (59, 0x8), (1, 0x88), (1, 0x80)),
        *((1, 0x4), (59, 0), (1, 0)),
    ):
        rig.now += seconds
        rig.fake.change(0, throttle=throttle)
        (device,) = plugin.discover()
        states += device.health.state[0]
        if device.health.state == "degraded":
            why = device.health.reason
    assert "hhhhhddddh" == states
    assert "the hardware slows it down: its power supply asks for it" == why


@pytest.mark.parametrize(
    ("strategy", "before", "after"),
    [
        ("none", {GPU: 2}, {GPU: 2}),
        ("single", {}, {GPU: 2}),
        ("mixed", {GPU: 1}, {GPU: 1, "nvidia.com/mig-1g.5gb": 2}),
    ],
)
def test_mig_devices_that_cannot_be_read_at_first_make_no_gpu_look_whole(
    rig: GpuRig,
    strategy: str,
    before: dict[str, int],
    after: dict[str, int],
) -> None:
    rig.has(Fleet((FakeGpu(0), FakeGpu(1, (FakeMig(1), FakeMig(2))))))
    rig.fake.fail("nvmlDeviceGetGpuInstanceId", 999)
    plugin = rig.plugin(mig_strategy=strategy)
    assert before == Counter(device.resource for device in plugin.discover())
    told = any("these cannot be read" in problem for problem in plugin.shortfalls)
    assert (strategy != "none") == told
    rig.fake.mend()
    assert after == Counter(device.resource for device in plugin.discover())


def test_a_card_whose_mig_devices_cannot_be_read_costs_itself_only(rig: GpuRig) -> None:
    mig = FakeMig(1, "1g.5gb")
    rig.has(Fleet.of(3, migs=(mig,)))
    plugin = rig.plugin(mig_strategy="mixed")
    before = devices(plugin).keys()
    rig.fake.fail("nvmlDeviceGetMigDeviceHandleByIndex", 999, gpu=1)
    found = devices(plugin)
    assert before == found.keys()
    assert {mig.uuid(1)} == unhealthy(found).keys()


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetRemappedRows"])
def test_a_gpu_that_cannot_be_read_at_first_has_the_resource_of_its_model(
    rig: GpuRig, function: str
) -> None:
    rig.has(Fleet.of(1, name="NVIDIA L4")).fake.fail(function, 16)
    naming = {"gpus": [{"pattern": "*L4", "name": "l4"}]}
    (device,) = rig.plugin(resources=naming).discover()
    assert ("nvidia.com/l4", False) == (device.resource, bool(device.health))
    assert "0000:01:00.0" == device.attributes["pci"]


def test_a_double_bit_error_makes_a_gpu_unhealthy_and_single_ones_do_not(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, uuids(0, 1))
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"], "a wait for events")
        rig.fake.sbe(0)
        rig.fake.dbe(1)
        node.wait_for(GPU, uuids(0), unhealthy=uuids(1))
        assert "xid_48" == plugin._driver.health.verdict(uuid(1)).cause


@pytest.mark.parametrize(
    ("action", "status", "expected"),
    [(0, 0, False), (1, 0, True), (2, 0, True), (3, 0, False), (4, 0, True), (1, 3, None)],
)
def test_the_drivers_advice_is_a_reset_or_none(
    monkeypatch: pytest.MonkeyPatch, action: int, status: int, expected: bool | None
) -> None:
    field = SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=action))
    monkeypatch.setattr("pynvml.nvmlDeviceGetFieldValues", lambda *_: [field])
    assert expected is enumeration._advice(object())


@pytest.mark.parametrize(
    ("slices", "compute", "memory", "total", "expected"),
    [
        (1, 1, 4864, 40960, "1g.5gb"),
        (3, 3, 19968, 40960, "3g.20gb"),
        (3, 1, 40320, 81559, "1c.3g.40gb"),
        (7, 7, 40320, 40960, "7g.40gb"),
        (3, 3, 71168, 143771, "3g.71gb"),  # 70.5: half up, as go-nvlib rounds
        (1, 1, 18432, 149504, "1g.18gb"),
        (0, 0, 4864, 40960, ""),
        (1, 1, 4864, 0, ""),
    ],
)
def test_a_profile_without_a_name_is_named_by_its_size(
    slices: int, compute: int, memory: int, total: int, expected: str
) -> None:
    mig = Mig("", 0, 0, 0, memory=memory << 20, slices=slices, compute_slices=compute)
    assert expected == gpu_facts.computed_profile(mig, total << 20)


@pytest.mark.parametrize("code", [3, 4, 999])
@pytest.mark.parametrize(
    "profile", ["1g.5gb", "1g.5gb+me", "1g.5gb-me", "1g.5gb+gfx", "2g.10gb+me.all"]
)
def test_a_mig_device_whose_name_cannot_be_told_has_its_profile_still(
    rig: GpuRig, profile: str, code: int
) -> None:
    rig.has(Fleet((FakeGpu(0, (FakeMig(1, profile),)),)))
    rig.fake.fail("nvmlDeviceGetName", code)
    found = devices(rig.plugin(mig_strategy="mixed"))
    expected = f"nvidia.com/mig-{profile.replace('+', '.')}"
    assert [expected] == [one.resource for one in found.values()]
    assert {} == unhealthy(found)


@pytest.mark.parametrize("refused", ["nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"])
def test_a_profile_that_only_its_name_tells_apart_outlives_the_name(
    rig: GpuRig, refused: str
) -> None:
    """Where the driver tells no more to those who may not change MIG devices."""
    rig.has(Fleet((FakeGpu(0, (FakeMig(1, "1g.5gb+me"),)),))).fake.fail(refused, 4)
    plugin = rig.plugin(mig_strategy="mixed")
    before = devices(plugin)
    rig.fake.fail("nvmlDeviceGetName", 999)
    assert [one.resource for one in before.values()] == [
        one.resource for one in devices(plugin).values()
    ]
    rig.fake.change(0, migs=(FakeMig(1, "2g.10gb"),))  # its UUID is the same
    assert ["nvidia.com/mig-2g.10gb"] == [one.resource for one in devices(plugin).values()]


@pytest.mark.parametrize("code", [4, 999])
@pytest.mark.parametrize(
    "cosmetic",
    [
        *("Attributes_v2", "GpuInstanceById", "GpuInstanceProfileInfoV", "PciInfo_v3"),
        *("MemoryInfo", "MinorNumber", "CudaComputeCapability", "GpuFabricInfoV"),
    ],
)
def test_what_is_only_told_to_people_makes_no_gpu_unhealthy(
    rig: GpuRig, cosmetic: str, code: int
) -> None:
    rig.has(Fleet((FakeGpu(0, (FakeMig(1, "1g.5gb"),)), FakeGpu(1))))
    rig.fake.fail(f"nvmlDeviceGet{cosmetic}", code)
    found = devices(rig.plugin(mig_strategy="mixed"))
    assert (2, {}) == (len(found), unhealthy(found))


@pytest.mark.parametrize("code", [3, 4, 999])
def test_a_model_that_cannot_be_read_costs_no_gpu(rig: GpuRig, code: int) -> None:
    rig.has(Fleet.of(2))
    rig.fake.fail("nvmlDeviceGetName", code, gpu=1)
    found = devices(rig.plugin())
    assert (uuids(0, 1), {}) == ({*found}, unhealthy(found))


@pytest.mark.parametrize(
    "given",
    [
        {"exclude": ("*A100*",)},
        {"include": ("*L4*",)},
        {"resources": "gpus: [{pattern: '*L4*', name: l4}]"},
    ],
)
def test_a_gpu_whose_model_is_not_known_is_not_chosen_by_it(
    rig: GpuRig, given: dict[str, Any]
) -> None:
    rig.has(Fleet.of(2, name="NVIDIA L4")).fake.fail("nvmlDeviceGetName", 4, gpu=1)
    plugin = rig.plugin(**given)
    assert uuids(0) == {*devices(plugin)}
    reason = f"GPU {uuid(1)} is skipped: its model cannot be read: the driver does not answer"
    assert [reason] == plugin.shortfalls
    rig.fake.fail("nvmlDeviceGetName", 4)
    plugin = rig.plugin(**given)
    assert {} == devices(plugin)
    assert [reason.replace(uuid(1), uuid(0)), reason] == plugin.shortfalls


def test_a_link_that_cannot_be_read_costs_no_gpu(rig: GpuRig) -> None:
    rig.has(Fleet.of(3, switch=4)).place({0: -1})
    rig.fake.fail("nvmlDeviceGetNvLinkState", 999, gpu=1)
    rig.fake.fail("nvmlDeviceGetTopologyCommonAncestor", 999)
    plugin = rig.plugin()
    found = devices(plugin)
    assert ({}, None) == (unhealthy(found), found[uuid(0)].topology)
    chosen = plugin.prefer(list(found.values()), (), 2)
    assert uuids(0, 2) == {device.id for device in chosen}


def test_a_link_that_is_down_is_none(rig: GpuRig) -> None:
    rig.fake.write("gpu 0-2\nlink 0 1 count=2 active=no\nlink 1 2 count=1\n")
    plugin = rig.plugin()
    found = devices(plugin)
    chosen = plugin.prefer(list(found.values()), (), 2)
    assert uuids(1, 2) == {device.id for device in chosen}


def test_an_upgraded_library_is_loaded_beside_the_old_one(rig: GpuRig, tmp_path: Path) -> None:
    (link,) = rig.driver_root.glob("usr/lib64/*")
    library = Library(rig.driver_root)
    first = library.load()
    assert first is not None
    assert library.load() is None
    other = tmp_path / "libnvidia-ml.so.999"
    other.write_bytes(rig.library.read_bytes())
    link.unlink()
    link.symlink_to(other)
    second = library.load()
    assert second is not None
    assert (str(other), True) == (library.path, second._handle != first._handle)


class Nowhere(Library):
    """A library that is not there, not even in this process."""

    def _places(self) -> Iterator[str]:
        yield f"{self.root}/libnone.so"


def test_a_missing_library_is_looked_for_again(tmp_path: Path) -> None:
    session = Session(Nowhere(tmp_path))
    for _ in range(2):
        with pytest.raises(LibraryMissingError, match="is in none of 1 places"):
            session.open()
    assert not session.is_open
    with pytest.raises(NvmlError, match="not initialized"), session.use():
        pass


def test_a_node_without_a_library_is_a_tegra_system_if_it_looks_like_one(rig: GpuRig) -> None:
    driver = Driver(Nowhere(rig.path), rig.roots.sys)
    plugin = GpuPlugin(rig.settings(), driver=driver, roots=rig.roots)
    assert {} == devices(plugin)
    rig.has_nodes("nvidia0")
    with pytest.raises(dp.DiscoveryError, match="NVML library"):
        plugin.discover()
    (rig.roots.etc / "nv_tegra_release").touch()
    assert ["tegra"] == list(devices(plugin))


def test_a_reading_of_a_lost_gpu_is_an_error(rig: GpuRig) -> None:
    driver = rig.has(Fleet.of(1)).driver()
    driver.poll()
    rig.fake.fail("nvmlDeviceGetMemoryInfo", 15)
    with pytest.raises(NvmlError, match="lost"):
        read_gpu(driver.session, uuid(0))


@pytest.mark.parametrize(
    "function", ["nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"]
)
def test_no_gpu_is_worse_for_a_version_that_is_not_told(rig: GpuRig, function: str) -> None:
    rig.has(Fleet.of(2)).fake.fail(function, 999)
    found = devices(rig.plugin(labels_file=rig.path / "features.d/gpu"))
    assert uuids(0, 1) == found.keys()
    assert {} == unhealthy(found)


def test_a_call_that_hangs_costs_no_gpu_that_was_seen(
    rig: GpuRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_PATIENCE", 0.05)
    rig.now = 0.0
    driver = rig.has(Fleet.of(2)).driver()
    driver.poll()
    rig.fake.change(1, state="lost")
    driver.poll()
    rig.now = 500.0
    with driver.session.use():  # NVML cannot be initialized anew
        seen = driver.poll()
    assert ["", "nvml"] == [gpu.problem[:4] for gpu in seen.snapshot.gpus]
    driver.poll()
    assert 1 == rig.fake.calls()["nvmlInitWithFlags"]
    rig.now = 1000.0
    driver.poll()
    assert 2 == rig.fake.calls()["nvmlInitWithFlags"]


def test_a_look_at_slow_gpus_ends_and_tells_which_it_did_not_reach(
    rig: GpuRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"a name": 0.0}
    calls = rig.fake.calls
    clock = lambda _: seconds["a name"] * calls()["nvmlDeviceGetName"]  # noqa: E731
    monkeypatch.setattr(type(rig.clock), "now", clock)
    plugin = rig.has(Fleet.of(4, switch=6)).plugin(discovery_deadline=timedelta(seconds=6.4))
    assert {} == unhealthy(devices(plugin))
    seconds["a name"] = 1.2
    reasons = unhealthy(devices(plugin))
    assert uuids(2, 3) == reasons.keys()
    assert {"NVML is too slow: there was no time to read this GPU"} == {*reasons.values()}
    seconds["a name"] = 0
    assert {} == unhealthy(devices(plugin))


def test_a_look_after_another_initialization_has_its_own_time(rig: GpuRig) -> None:
    driver = rig.has(Fleet.of(2)).driver()
    driver.poll()
    rig.fake.change(1, state="lost")
    driver.poll()
    rig.fake.delay("nvmlShutdown", milliseconds=400)
    seen = driver.poll(patience=0.3)
    assert 2 == rig.fake.calls()["nvmlInitWithFlags"]
    assert [False, True] == ["lost" in gpu.problem for gpu in seen.snapshot.gpus]


@pytest.mark.parametrize(
    ("function", "calls"),
    [("nvmlDeviceGetNvLinkState", 72), ("nvmlDeviceGetTopologyCommonAncestor", 15)],
)
def test_links_that_there_was_no_time_for_are_asked_for_at_the_next_look(
    rig: GpuRig, function: str, calls: int
) -> None:
    rig.has(Fleet.of(6, switch=12)).fake.delay(function, milliseconds=30)
    driver = rig.driver()
    assert len(driver.poll(patience=0.1).snapshot.links) < 30
    assert {} == {gpu.uuid: gpu.problem for gpu in driver.gpus if gpu.problem}
    assert rig.fake.calls()[function] < min(calls, 10)
    rig.fake.mend()
    assert 30 == len(driver.poll().snapshot.links)
    assert {12} == {link.nvlinks for link in driver.poll().snapshot.links.values()}


def test_odd_entries_of_health_checks_are_told(
    rig: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.plugin(disable_healthchecks="79,seventy")
    (record,) = [one for one in caplog.records if one.message == "invalid setting ignored"]
    assert "seventy" in vars(record)["problem"]


def test_what_keeps_labels_from_being_written_is_told(rig: GpuRig) -> None:
    rig.roots.proc.joinpath("plain").write_text("a file, no directory")
    plugin = rig.has(Fleet.of(2)).plugin(labels_file=rig.roots.proc / "plain/gpu")
    assert uuids(0, 1) == devices(plugin).keys()
    (problem,) = plugin.shortfalls
    assert "labels-file" in problem


def test_another_mig_layout_is_told_by_the_driver(rig: GpuRig, kubelet: Kubelet) -> None:
    rig.has(Fleet.of(1, migs=(FakeMig(1, "1g.5gb"),)))
    plugin = rig.plugin(mig_strategy="mixed")
    with kubelet.running(plugin, discovery_interval=timedelta(hours=1)) as node:
        node.wait_for("nvidia.com/mig-1g.5gb", {FakeMig(1).uuid(0)})
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"], "a wait for events")
        rig.fake.change(0, migs=(FakeMig(1, "1g.5gb"), FakeMig(2, "2g.10gb")))
        rig.fake.mig_changed(0)
        node.wait_for("nvidia.com/mig-2g.10gb", {FakeMig(2).uuid(0)})


def test_metrics_and_devices_turn_unhealthy_together_when_nvml_fails(rig: GpuRig) -> None:
    """The framework keeps devices healthy until its deadline; a metric is no sooner."""
    plugin = rig.has(Fleet.of(1)).plugin(discovery_deadline=timedelta(seconds=60))

    def cause(at: float) -> str:
        rig.now = at
        with suppress(dp.DiscoveryError):
            list(plugin.discover())
        return plugin._driver.health.verdict(uuid(0)).cause

    assert "" == cause(0)
    rig.fake.drop_driver()
    assert ["", "", "nvml"] == [cause(at) for at in (100, 150, 161)]
    rig.fake.mend()
    assert "" == cause(170)
    rig.fake.drop_driver()
    assert ["", "nvml"] == [cause(at) for at in (200, 261)], "a failure begins anew"


LOST = "cannot be read: nvmlDeviceGetUUID: GPU is lost (NVML error 15)"
UNLISTED = "is not known to NVML: it is lost, or hidden from this plugin"
LOG = "see the kernel's log: dmesg | grep NVRM"


@pytest.fixture
def node(rig: GpuRig) -> GpuRig:
    """Three GPUs, which are on the bus with their driver."""
    for slot in range(3):
        rig.has_card(FakeGpu(slot).pci, driver="nvidia")
    return rig.has(Fleet.of(3))


def absent(plugin: GpuPlugin) -> list[dict[str, str]]:
    return [
        sample.labels
        for family in plugin.metrics()
        for sample in family.samples
        if sample.name == "deviceplugin_gpu_absent"
    ]


@pytest.mark.parametrize(
    ("lost", "gone", "told", "absent_gpus"),
    [
        ([], [], [], []),
        ([1], [], [f"GPU 1 at 0000:02:00.0 {LOST}"], [("0000:02:00.0", "1")]),
        ([], [2], [f"GPU at 0000:03:00.0 {UNLISTED}: {LOG}"], [("0000:03:00.0", "")]),
        (
            [1],
            [2],  # which of both it is cannot be said
            [f"GPU at 0000:0{number}:00.0 {LOST}" for number in (2, 3)],
            [("0000:02:00.0", ""), ("0000:03:00.0", "")],
        ),
    ],
)
def test_a_gpu_that_was_lost_before_the_start_is_told_by_its_address(
    node: GpuRig,
    lost: list[int],
    gone: list[int],
    told: list[str],
    absent_gpus: list[tuple[str, str]],
) -> None:
    for slot in lost:
        node.fake.change(slot, state="lost")
    for slot in gone:
        node.fake.remove(slot)
    plugin = node.plugin()
    for _ in range(3):
        assert uuids(0, 1, 2) - uuids(*lost, *gone) == devices(plugin).keys()
        assert told == plugin.shortfalls
    assert [{"pci": pci, "index": index} for pci, index in absent_gpus] == absent(plugin)
    for slot in lost:
        node.fake.change(slot, state="ok")
    for slot in gone:
        node.fake.add(FakeGpu(slot))
    node.now = 1e6
    assert uuids(0, 1, 2) == devices(plugin).keys()
    assert ([], []) == (plugin.shortfalls, absent(plugin))


@pytest.mark.parametrize("state", ["lost", "unreachable"])
def test_without_sysfs_the_index_is_told(rig: GpuRig, state: str) -> None:
    rig.has(Fleet.of(2)).fake.change(1, state=state)
    plugin = rig.plugin(fail_on_init_error=True)
    assert uuids(0) == devices(plugin).keys()
    (told,) = plugin.shortfalls
    assert told.startswith("GPU 1 cannot be read: nvmlDeviceGet")
    assert told.endswith("GPU is lost (NVML error 15)")
    assert [{"pci": "", "index": "1"}] == absent(plugin)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("", [f"GPU at 0000:3b:00.0 has no driver: {LOG}"]),
        ("vfio-pci", []),
        ("nvgrace-gpu-vfio-pci", []),
        ("pci-stub", []),
        ("nouveau", ["GPU at 0000:3b:00.0 has the driver nouveau, not nvidia"]),
    ],
)
def test_a_gpu_that_is_not_served_is_told_unless_it_is_for_a_virtual_machine(
    node: GpuRig, driver: str, expected: Sequence[str]
) -> None:
    node.has_card(driver=driver)
    plugin = node.plugin()
    assert uuids(0, 1, 2) == devices(plugin).keys()
    assert list(expected) == plugin.shortfalls
    assert len(expected) == len(absent(plugin))
    excluding = node.plugin(exclude=("3b:00.0",))
    excluding.discover()
    assert ([], []) == (excluding.shortfalls, absent(excluding)), "it is meant so"


def test_a_gpu_that_was_pulled_out_is_not_the_one_that_is_lost(node: GpuRig) -> None:
    plugin = node.plugin()
    plugin.discover()
    node.pull(FakeGpu(0).pci)
    node.fake.remove(0)
    node.fake.change(2, state="lost")
    found = devices(plugin)
    assert uuids(1, 2) == found.keys()
    assert {uuid(2)} == unhealthy(found).keys()


def test_a_gpu_without_an_address_could_be_any(node: GpuRig) -> None:
    node.fake.fail("nvmlDeviceGetPciInfo_v3", 3, gpu=1)
    plugin = node.plugin()
    assert uuids(0, 1, 2) == devices(plugin).keys()
    assert ([], []) == (plugin.shortfalls, absent(plugin))


def test_a_gpu_that_only_drives_a_screen_is_none(node: GpuRig) -> None:
    node.fake.change(2, name="NVIDIA DGX Display")
    plugin = node.plugin()
    assert uuids(0, 1) == devices(plugin).keys()
    assert ([], []) == (plugin.shortfalls, absent(plugin))


def test_a_domain_of_five_digits_is_not_that_of_four(node: GpuRig) -> None:
    node.fake.change(0, pci="10000:02:00.0")
    found = devices(node.plugin(exclude=("02:00.0",)))
    assert uuids(0, 2) == found.keys()
    assert "10000:02:00.0" == found[uuid(0)].attributes["pci"]
    assert uuids(1, 2) == devices(node.plugin(exclude=("00010000:02:00.0",))).keys()
