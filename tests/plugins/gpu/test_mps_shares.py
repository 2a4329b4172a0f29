"""What the plugin offers by MPS: what it refuses, which daemons it wants, what containers get."""

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin_gpu.mps.daemons import LOCK, RUNNING, WANTED, Daemon, Daemons
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.mps import FakeMps, alive, daemon, fake_mps, listening
from gpu.rig import GPU, GpuRig, devices, unhealthy, uuid

A, B = uuid(0), uuid(1)
NAME = f"{GPU}/{A}"
MIGS = (FakeMig(1, "1g.5gb"), FakeMig(2, "2g.10gb"))
SMALL, LARGE = (one.uuid(0) for one in MIGS)
OF_SMALL, OF_LARGE = f"nvidia.com/mig-1g.5gb/{SMALL}", f"nvidia.com/mig-2g.10gb/{LARGE}"


def mps_of(replicas: int = 4, *names: str, **more: Any) -> dict[str, Any]:
    entries = [{"name": name, "replicas": replicas} for name in names or ("gpu",)]
    return {"mps": {"resources": entries, **more}}


OF_MIGS = mps_of(2, "mig-1g.5gb", "mig-2g.10gb", failRequestsGreaterThanOne=False)


@pytest.fixture
def mps(rig: GpuRig, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    with fake_mps(monkeypatch) as fake:
        rig.roots = replace(rig.roots, mps=fake.root)
        yield fake


def plugin_of(rig: GpuRig, sharing: Mapping[str, Any], **more: Any) -> GpuPlugin:
    return rig.plugin(sharing=sharing, mps_root=Path("/run/nvidia/mps"), **more)


def reasons(plugin: GpuPlugin, count: int = 4) -> set[str]:
    """Return why shares are unhealthy, which must be so many."""
    found = unhealthy(devices(plugin))
    assert count == len(found)
    return {*found.values()}


# What MPS cannot serve.


@pytest.mark.parametrize(
    ("fleet", "settings", "reason"),
    [
        (Fleet.of(1, compute_mode=2), {}, f"Prohibited: nvidia-smi -i {A} -c DEFAULT"),
        (Fleet.of(1, migs=MIGS), {}, "MIG is enabled: set mig-strategy to mixed or single"),
        (Fleet.of(1, virtualization="vgpu"), {}, "it is a vGPU: share by timeSlicing"),
        (Fleet.of(1, compute="3.0"), {}, "its compute capability is below 3.5"),
        (Fleet.of(1, uuid="54d0709b-0000-4000-8000-000000000000"), {}, "no MPS on a Jetson"),
        (Fleet(), {"device_discovery_strategy": "tegra"}, "no MPS on a Jetson and on WSL"),
        (Fleet(), {}, "MPS cannot serve all: no MPS on a Jetson and on WSL"),
        (replace(Fleet.of(1), driver={"cuda": "11.4"}), {}, "install one for CUDA 11.5"),
    ],
)  # fmt: skip
def test_where_mps_cannot_be_shares_are_unhealthy_and_no_daemon_is_wanted(
    rig: GpuRig, mps: FakeMps, fleet: Fleet, settings: dict[str, Any], reason: str
) -> None:
    rig.has_nodes(*([] if fleet.gpus or settings else ["dxg"]))
    plugin = plugin_of(rig.has(fleet), mps_of(), **settings)
    with closing(listening(mps.root)):
        (why,) = reasons(plugin)
    assert reason in why
    assert not (mps.root / WANTED).exists()


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ({"compute": "6.0"}, {A: 16}),
        ({"compute": "7.0"}, {A: 48}),
        # In proportion to the compute slices, of seven or four.
        ({"migs": MIGS}, {SMALL: 6, LARGE: 13}),
        ({"migs": MIGS, "name": "NVIDIA A30"}, {SMALL: 12, LARGE: 24}),
    ],
)
def test_replicas_that_mps_has_no_room_for_are_unhealthy(
    rig: GpuRig, mps: FakeMps, values: dict[str, Any], counts: dict[str, int]
) -> None:
    sharing = mps_of(50, "gpu", "mig-1g.5gb", "mig-2g.10gb")
    found = unhealthy(
        devices(plugin_of(rig.has(Fleet.of(1, **values)), sharing, mig_strategy="mixed"))
    )
    for one, most in counts.items():
        full = {key for key, why in found.items() if f"{one}: it can have {most} replicas" in why}
        assert {f"{one}::{number}" for number in range(most, 50)} == full
    assert {*counts} == {one for each in mps.wanted().values() for one in each.devices}


# Which daemons are wanted.


@pytest.mark.parametrize(
    ("fleet", "sharing", "expected"),
    [
        (Fleet.of(2, memory=40960), mps_of(), {NAME: daemon(A), f"{GPU}/{B}": daemon(B)}),
        (
            Fleet.of(2, memory=40960),
            mps_of(failRequestsGreaterThanOne=False, renameByDefault=True),
            {f"{GPU}.shared": daemon(A, B)},
        ),
        (
            Fleet.of(1, migs=MIGS),
            mps_of(2, "mig-1g.5gb"),
            {OF_SMALL: daemon(SMALL, memory=2480, threads=50)},
        ),
        (Fleet.of(1, compute="6.0"), mps_of(), {NAME: daemon(A, memory=0, threads=0)}),
        (
            Fleet((FakeGpu(0, values={"compute": "6.0"}), FakeGpu(1, values={"memory": 20480}))),
            mps_of(failRequestsGreaterThanOne=False),
            {GPU: Daemon({A: 0, B: 5120}, 25)},
        ),
    ],
)
def test_a_daemon_is_wanted_for_each_device_or_for_what_one_container_may_have(
    rig: GpuRig, mps: FakeMps, fleet: Fleet, sharing: dict[str, Any], expected: Daemons
) -> None:
    plugin = plugin_of(rig.has(fleet), sharing, mig_strategy="mixed")
    devices(plugin)
    assert expected == mps.wanted()
    mps.run(expected)
    with alive(mps.root):
        assert {} == unhealthy(devices(plugin))


def test_without_mps_no_daemon_is_wanted_any_more(rig: GpuRig, mps: FakeMps) -> None:
    rig.has(Fleet.of(1))
    devices(plugin_of(rig, {}))
    assert not (mps.root / WANTED).exists()
    devices(plugin_of(rig, mps_of()))
    assert {NAME} == mps.wanted().keys()
    devices(plugin_of(rig, {}))
    assert {} == mps.wanted()


def test_the_daemon_of_a_held_mig_device_is_not_wanted_and_others_are(
    rig: GpuRig, mps: FakeMps
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1, migs=MIGS)), OF_MIGS, mig_strategy="mixed")
    found = devices(plugin)
    mps.run({OF_SMALL: mps.wanted()[OF_SMALL]})
    with alive(mps.root):
        plugin.held = [found[f"{SMALL}::0"], found[f"{SMALL}::1"]]
        assert {f"{LARGE}::0", f"{LARGE}::1"} == unhealthy(devices(plugin)).keys()
    assert {OF_LARGE} == mps.wanted().keys()


# What says that a daemon is ready.


def test_a_daemon_that_answers_and_has_no_limits_yet_serves_nobody(
    rig: GpuRig, mps: FakeMps
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1, memory=40960)), mps_of())
    with alive(mps.root):
        for running, reason in (
            ({}, f"gpu-mps-daemon has not started the MPS control daemon {NAME}"),
            ({NAME: replace(daemon(A), problem="being started")}, f"{NAME}: being started"),
            ({NAME: daemon(A, threads=50)}, "has other limits or devices until"),
            ({NAME: daemon(A, memory=1)}, "has other limits or devices until"),
            ({NAME: daemon(B)}, "has other limits or devices until"),
        ):
            mps.run(running)
            (why,) = reasons(plugin)
            assert reason in why
        mps.run({NAME: daemon(A)})
        assert {} == unhealthy(devices(plugin))


def test_of_a_gpu_mps_daemon_that_was_killed_only_its_file_is_left_and_nvidias_serves(
    rig: GpuRig, mps: FakeMps
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1, memory=40960)), mps_of())
    with alive(mps.root):
        mps.run({NAME: daemon(A)})
    (why,) = reasons(plugin)
    assert f"on {mps.root / GPU}/pipe/control: No such file" in why
    assert why.endswith("and gpu-mps-daemon does not run")
    with closing(listening(mps.root)):
        found = devices(plugin)
        assert ({}, []) == (unhealthy(found), list(plugin.shortfalls))
        pipe = plugin.allocate([found[f"{A}::0"]]).envs["CUDA_MPS_PIPE_DIRECTORY"]
        with alive(mps.root):
            devices(plugin)
    assert f"/mps/{GPU}/pipe" == pipe
    (both,) = plugin.shortfalls
    assert f"another MPS control daemon is in {mps.root / GPU}: delete NVIDIA's" in both


def test_a_file_that_cannot_be_read_makes_shares_unhealthy_and_is_named(
    rig: GpuRig, mps: FakeMps
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1)), mps_of())
    (mps.root / RUNNING).write_text('{"version": 9, "daemons": {}}')
    with alive(mps.root):
        (why,) = reasons(plugin)
    assert re.match(f"{mps.root / RUNNING}:.* of one release", why)
    (mps.root / LOCK).unlink()
    (mps.root / LOCK).mkdir()
    assert {f"{mps.root / LOCK}: Is a directory"} == reasons(plugin)


def test_what_cannot_be_told_to_the_daemon_is_a_warning(rig: GpuRig, mps: FakeMps) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1)), mps_of())
    (mps.root / WANTED).mkdir()
    devices(plugin)
    assert [] == list(plugin.shortfalls), "NVIDIA's daemon reads no such file"
    with alive(mps.root):
        devices(plugin)
    (why,) = plugin.shortfalls
    assert why.startswith("gpu-mps-daemon does not learn what is shared: ")


# What containers get.


def test_a_container_with_a_share_of_a_mig_device_has_its_daemon_and_its_part(
    rig: GpuRig, mps: FakeMps
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(1, migs=MIGS)), OF_MIGS, mig_strategy="mixed")
    with alive(mps.root):
        found = devices(plugin)
    expected = dp.Allocation(
        envs={
            "NVIDIA_VISIBLE_DEVICES": SMALL,
            "CUDA_MPS_PIPE_DIRECTORY": f"/mps/{OF_SMALL}/pipe",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2480M",
        },
        mounts=[
            dp.Mount(f"/run/nvidia/mps/{OF_SMALL}/pipe", f"/mps/{OF_SMALL}/pipe"),
            dp.Mount("/run/nvidia/mps/shm", "/dev/shm"),
        ],
    )
    assert expected == plugin.allocate([found[f"{SMALL}::0"]])
    with pytest.raises(dp.AllocationError, match="cannot use several MPS control daemons"):
        plugin.allocate([found[f"{SMALL}::0"], found[f"{LARGE}::0"]])


@pytest.mark.slow
def test_shares_follow_their_daemon_through_its_life(
    rig: GpuRig, mps: FakeMps, kubelet: Kubelet
) -> None:
    plugin = plugin_of(rig.has(Fleet.of(2, memory=40960)), mps_of(2))
    of_a, of_b = ({f"{one}::{number}" for number in range(2)} for one in (A, B))
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, (), unhealthy=of_a | of_b)
        with mps.supervised():
            node.wait_for(GPU, of_a | of_b)
            pipe = node.allocate(f"{A}::0").envs["CUDA_MPS_PIPE_DIRECTORY"]
            assert f"/mps/{NAME}/pipe" == pipe
            mps.behave(**{A: {"start": "hang"}})
            os.kill(mps.pid(NAME), signal.SIGKILL)
            node.wait_for(GPU, of_b, unhealthy=of_a)
            mps.behave()
            node.wait_for(GPU, of_a | of_b)
        node.wait_for(GPU, (), unhealthy=of_a | of_b)


def test_the_page_names_tests_that_there_are() -> None:
    here = Path(__file__)
    page = (here.parents[3] / "plugins/gpu/docs/mps.md").read_text()
    code = here.read_text() + here.with_name("test_mps.py").read_text()
    named = re.findall(r"^\|.* `(\w+)` \|$", page, re.MULTILINE)
    assert [] == [one for one in named if f"def test_{one}(" not in code]
    assert 15 < len(named)
