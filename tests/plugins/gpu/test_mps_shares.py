"""What the plugin offers by MPS: what it refuses, which daemons it wants, what containers get."""

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin_gpu.advertised.units import advertise
from deviceplugin_gpu.mps.daemons import RUNNING, WANTED, Daemon, Limited, read, write
from deviceplugin_gpu.mps.shares import Shares
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.mps import FakeMps, daemon, listening
from gpu.rig import GPU, GpuRig, devices, unhealthy, uuid

A, B = uuid(0), uuid(1)
MIGS = (FakeMig(1, "1g.5gb"), FakeMig(2, "2g.10gb"))
BOTH = ("mig-1g.5gb", "mig-2g.10gb")
SMALL, LARGE = (one.uuid(0) for one in MIGS)


def mps_of(replicas: int = 4, *names: str, **more: Any) -> dict[str, Any]:
    entries = [{"name": name, "replicas": replicas} for name in names or ("gpu",)]
    return {"mps": {"resources": entries, **more}}


@pytest.fixture
def rig_mps(rig: GpuRig, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    """The node's mps-root, by a short path: that of a socket has 107 bytes."""
    with TemporaryDirectory(prefix="mps") as folder:
        mps = FakeMps(Path(folder), Path(folder) / "mps")
        monkeypatch.setenv("FAKE_MPS", mps.environment["FAKE_MPS"])
        rig.roots = replace(rig.roots, mps=mps.root)
        yield mps


def plugin_of(rig: GpuRig, sharing: Mapping[str, Any], **more: Any) -> GpuPlugin:
    return rig.plugin(sharing=sharing, mps_root=Path("/run/nvidia/mps"), **more)


def served(mps: FakeMps) -> None:
    """Say that all daemons are as they are wanted."""
    write(mps.root / RUNNING, read(mps.root / WANTED) or ())


# What MPS cannot serve.


@pytest.mark.parametrize(
    ("fleet", "settings", "reason"),
    [
        (Fleet.of(1, compute_mode=2), {}, f"is Prohibited: nvidia-smi -i {A} -c DEFAULT"),
        (Fleet.of(1, migs=MIGS), {}, "MIG is enabled: set mig-strategy to mixed or single"),
        (Fleet.of(1, virtualization="vgpu"), {}, "it is a vGPU: share by timeSlicing"),
        (Fleet.of(1, compute="3.0"), {}, "its compute capability is below 3.5"),
        (Fleet.of(1, uuid="54d0709b-0000-4000-8000-000000000000"), {}, "no MPS on a Jetson"),
        (Fleet(), {"device_discovery_strategy": "tegra"}, "no MPS on a Jetson and on WSL"),
        (replace(Fleet.of(1), driver={"cuda": "11.4"}), {}, "install one for CUDA 11.5"),
    ],
)  # fmt: skip
def test_where_mps_cannot_be_shares_are_unhealthy_and_no_daemon_is_wanted(
    rig: GpuRig, rig_mps: FakeMps, fleet: Fleet, settings: dict[str, Any], reason: str
) -> None:
    plugin = plugin_of(rig.has(fleet), mps_of(), **settings)
    with closing(listening(rig_mps.root)):
        reasons = unhealthy(devices(plugin))
    assert 4 == len(reasons)
    assert [] == [why for why in reasons.values() if reason not in why]
    assert not (rig_mps.root / WANTED).exists()


@pytest.mark.usefixtures("rig_mps")
def test_wsl_is_refused_too(rig: GpuRig) -> None:
    rig.has_nodes("dxg")
    reasons = unhealthy(devices(plugin_of(rig, mps_of())))
    assert ["there is no MPS on a Jetson and on WSL"] == sorted(
        {why.split(": ")[1] for why in reasons.values()}
    )


@pytest.mark.parametrize(
    ("values", "names", "counts"),
    [
        ({"compute": "6.0"}, ("gpu",), {A: 16}),
        ({"compute": "7.0"}, ("gpu",), {A: 48}),
        # In proportion to the compute slices, of seven or four.
        ({"migs": MIGS}, BOTH, {SMALL: 6, LARGE: 13}),
        ({"migs": MIGS, "name": "NVIDIA A30"}, BOTH, {SMALL: 12, LARGE: 24}),
    ],
)  # fmt: skip
def test_replicas_that_mps_has_no_room_for_are_unhealthy(
    rig: GpuRig,
    rig_mps: FakeMps,
    values: dict[str, Any],
    names: tuple[str, ...],
    counts: dict[str, int],
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1, **values)), mps_of(50, *names), mig_strategy="mixed")
    devices(plugin)
    served(rig_mps)
    reasons = unhealthy(devices(plugin))
    for one, most in counts.items():
        full = {key for key, why in reasons.items() if f"{one} can have {most} replicas" in why}
        assert {f"{one}::{number}" for number in range(most, 50)} == full


# Which daemons are wanted.


@pytest.mark.parametrize(
    ("fleet", "sharing", "expected"),
    [
        (
            Fleet.of(2, memory=40960),
            mps_of(4),
            [daemon(f"{GPU}/{A}", A), daemon(f"{GPU}/{B}", B)],
        ),
        (
            Fleet.of(2, memory=40960),
            mps_of(4, failRequestsGreaterThanOne=False, renameByDefault=True),
            [daemon(f"{GPU}.shared", A, B)],
        ),
        (
            Fleet.of(1, migs=MIGS),
            mps_of(2, "mig-1g.5gb"),
            [daemon(f"nvidia.com/mig-1g.5gb/{SMALL}", SMALL, memory=2480, threads=50)],
        ),
        (Fleet.of(1, compute="6.0"), mps_of(4), [daemon(f"{GPU}/{A}", A, memory=0, threads=0)]),
    ],
)
def test_a_daemon_is_wanted_for_each_device_or_for_what_one_container_may_have(
    rig: GpuRig, rig_mps: FakeMps, fleet: Fleet, sharing: dict[str, Any], expected: list[Daemon]
) -> None:
    devices(plugin_of(rig.has(fleet), sharing, mig_strategy="mixed"))
    assert tuple(expected) == read(rig_mps.root / WANTED)


def test_different_gpus_of_one_daemon_have_limits_of_their_own(
    rig: GpuRig, rig_mps: FakeMps
) -> None:
    gpus = (FakeGpu(0, values={"compute": "6.0"}), FakeGpu(1, values={"memory": 20480}))
    plugin = plugin_of(rig.has(Fleet(gpus)), mps_of(4, failRequestsGreaterThanOne=False))
    devices(plugin)
    expected = Daemon(GPU, (Limited(A), Limited(B, 5120)), 25)
    assert (expected,) == read(rig_mps.root / WANTED)
    served(rig_mps)
    with closing(listening(rig_mps.root)):
        assert {} == unhealthy(devices(plugin))


def test_without_mps_no_daemon_is_wanted_any_more(rig: GpuRig, rig_mps: FakeMps) -> None:
    rig.has(Fleet.of(1))
    devices(plugin_of(rig, {}))
    assert not (rig_mps.root / WANTED).exists()
    devices(plugin_of(rig, mps_of()))
    assert [f"{GPU}/{A}"] == [one.name for one in read(rig_mps.root / WANTED) or ()]
    devices(plugin_of(rig, {}))
    assert () == read(rig_mps.root / WANTED)


def test_the_daemon_of_a_gpu_that_is_held_is_not_wanted_and_its_shares_are_judged_as_before(
    rig: GpuRig, rig_mps: FakeMps
) -> None:
    settings = rig.settings(sharing=mps_of(), mps_root=Path("/run/nvidia/mps"))
    snapshot = rig.has(Fleet.of(2)).driver().poll().snapshot
    units, shares = advertise(snapshot, settings).units, Shares(rig_mps.root, settings)
    shares.check(units, snapshot.cuda)
    served(rig_mps)
    problems, warnings = shares.check(units, snapshot.cuda, {A})
    assert (f"{GPU}/{B}",) == tuple(one.name for one in read(rig_mps.root / WANTED) or ())
    assert [] == warnings
    assert {"does not answer"} == {
        "does not answer" for why in problems.values() if "answer" in why
    }
    assert not [why for why in problems.values() if "other limits" in why]


# What says that a daemon is ready.


def test_a_daemon_that_answers_and_has_no_limits_yet_serves_nobody(
    rig: GpuRig, rig_mps: FakeMps
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1, memory=40960)), mps_of())
    write(rig_mps.root / RUNNING, ())
    with closing(listening(rig_mps.root, f"{GPU}/{A}")):
        for running, reason in (
            ([], f"gpu-mps-daemon has not started the MPS control daemon {GPU}/{A}"),
            (
                [replace(daemon(f"{GPU}/{A}", A), problem="it is being started")],
                "it is being started",
            ),
            ([daemon(f"{GPU}/{A}", A, threads=50)], "has other limits or devices until"),
            ([daemon(f"{GPU}/{A}", A, memory=1)], "has other limits or devices until"),
            ([daemon(f"{GPU}/{A}", B)], "has other limits or devices until"),
        ):
            write(rig_mps.root / RUNNING, running)
            reasons = unhealthy(devices(plugin))
            assert [] == [why for why in reasons.values() if reason not in why]
            assert 4 == len(reasons)
        write(rig_mps.root / RUNNING, [daemon(f"{GPU}/{A}", A)])
        assert {} == unhealthy(devices(plugin))
    reasons = unhealthy(devices(plugin))
    assert 4 == len(reasons), "it died and nobody has said so yet"


def test_a_file_that_cannot_be_read_makes_shares_unhealthy_and_is_named(
    rig: GpuRig, rig_mps: FakeMps
) -> None:
    (rig_mps.root / RUNNING).write_text('{"version": 9, "daemons": []}')
    reasons = unhealthy(devices(plugin_of(rig.has(Fleet.of(1)), mps_of())))
    assert [] == [why for why in reasons.values() if str(rig_mps.root / RUNNING) not in why]
    assert "of one release" in min(reasons.values())


def test_what_cannot_be_told_to_the_daemon_is_a_warning(rig: GpuRig, rig_mps: FakeMps) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1)), mps_of())
    (rig_mps.root / WANTED).mkdir()
    devices(plugin)
    assert [] == list(plugin.shortfalls), "NVIDIA's daemon reads no such file"
    write(rig_mps.root / RUNNING, ())
    devices(plugin)
    assert ["gpu-mps-daemon does not learn what is shared"] == [
        one.split(":")[0] for one in plugin.shortfalls
    ]


# What containers get.


def test_a_container_with_a_share_of_a_mig_device_has_its_daemon_and_its_part(
    rig: GpuRig, rig_mps: FakeMps
) -> None:
    rig.has(Fleet.of(1, migs=MIGS))
    sharing = mps_of(2, "mig-1g.5gb", "mig-2g.10gb", failRequestsGreaterThanOne=False)
    plugin = plugin_of(rig, sharing, mig_strategy="mixed")
    resource = "nvidia.com/mig-1g.5gb"
    write(rig_mps.root / RUNNING, ())
    found = {one.id: one for one in plugin.discover()}
    expected = dp.Allocation(
        envs={
            "NVIDIA_VISIBLE_DEVICES": SMALL,
            "CUDA_MPS_PIPE_DIRECTORY": f"/mps/{resource}/{SMALL}/pipe",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2480M",
        },
        mounts=[
            dp.Mount(f"/run/nvidia/mps/{resource}/{SMALL}/pipe", f"/mps/{resource}/{SMALL}/pipe"),
            dp.Mount("/run/nvidia/mps/shm", "/dev/shm"),
        ],
    )
    assert expected == plugin.allocate([found[f"{SMALL}::0"]])
    with pytest.raises(dp.AllocationError, match="cannot use several MPS control daemons"):
        plugin.allocate([found[f"{SMALL}::0"], found[f"{LARGE}::0"]])


@pytest.mark.slow
def test_shares_follow_their_daemon_through_its_life(
    rig: GpuRig, rig_mps: FakeMps, kubelet: Kubelet
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(2, memory=40960)), mps_of(2))
    of_a, of_b = ({f"{one}::{number}" for number in range(2)} for one in (A, B))
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, (), unhealthy=of_a | of_b)
        with rig_mps.supervised():
            node.wait_for(GPU, of_a | of_b)
            pipe = f"/mps/{GPU}/{A}/pipe"
            assert pipe == node.allocate(f"{A}::0").envs["CUDA_MPS_PIPE_DIRECTORY"]
            rig_mps.behave(**{A: {"start": "hang"}})
            os.kill(rig_mps.pid(f"{GPU}/{A}"), signal.SIGKILL)
            node.wait_for(GPU, of_b, unhealthy=of_a)
            rig_mps.behave()
            node.wait_for(GPU, of_a | of_b)
        node.wait_for(GPU, (), unhealthy=of_a | of_b)


def test_the_page_names_tests_that_there_are() -> None:
    here = Path(__file__)
    page = (here.parents[3] / "plugins/gpu/docs/mps.md").read_text()
    code = here.read_text() + here.with_name("test_mps.py").read_text()
    named = re.findall(r"^\|.* `(\w+)` \|$", page, re.MULTILINE)
    assert [] == [one for one in named if f"def test_{one}(" not in code]
    assert 15 < len(named)
