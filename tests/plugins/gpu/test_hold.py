"""Letting go of one GPU, so that it can be reset while the others work.

The fake driver opens a GPU's device node with its first handle, and closes none before the last
shutdown; a reset fails while any process has the node open. Which calls of the real NVML open a
node is what NVIDIA documents, and has not been seen on a card.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import pytest

import deviceplugin as dp
from deviceplugin._app.hold_socket import ShortPath
from deviceplugin_gpu.mps.daemons import RUNNING, WANTED, read, write
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_testing.fixture import Kubelet, Node
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.mps import alive
from gpu.rig import GPU, GpuRig, uuid, uuids
from patience import eventually

REASON = "reset after XID 79"


def with_cards(rig: GpuRig, fleet: Fleet) -> GpuRig:
    """Have a fleet whose GPUs are on the PCI bus, and have device nodes."""
    rig.has(fleet)
    for gpu in fleet.gpus:
        rig.has_card(gpu.pci, driver="nvidia")
        rig.has_nodes(f"nvidia{gpu.slot}")
    return rig


def ask(node: Node, do: str, device: str, **more: object) -> Mapping[str, Any]:
    return node.host.ask_hold({"do": do, "device": device, "reason": REASON, **more})


def state(node: Node) -> str:
    (hold,) = node.host.ask_hold({"do": "list"})["holds"]
    return str(hold["state"])


def hold(node: Node, device: str, **more: object) -> None:
    ask(node, "hold", device, **more)
    eventually(lambda: state(node) == "let go")


def is_called(rig: GpuRig, times: int) -> bool:
    return rig.fake.calls()["nvmlDeviceGetUUID"] > times


def is_open(rig: GpuRig, slot: int) -> bool:
    return rig.fake.is_open(slot)


@contextmanager
def running(rig: GpuRig, kubelet: Kubelet, **given: Any) -> Iterator[Node]:
    with kubelet.running(rig.plugin(**given)) as node:
        yield node


def test_a_held_gpu_can_be_reset_while_the_others_are_read(rig: GpuRig, kubelet: Kubelet) -> None:
    with_cards(rig, Fleet.of(3))
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(0, 1, 2))
        assert [True] * 3 == [is_open(rig, slot) for slot in range(3)]
        rig.fake.change(1, state="lost")
        hold(node, uuid(1))
        node.wait_for(GPU, uuids(0, 2), uuids(1))
        rig.fake.reset(1)
        eventually(lambda: is_open(rig, 0) and is_open(rig, 2))
        rig.fake.xid(2, 79)  # events of the others are heard
        node.wait_for(GPU, uuids(0), uuids(1, 2))
        assert not is_open(rig, 1)
        ask(node, "release", uuid(1))
        node.wait_for(GPU, uuids(0, 1), uuids(2))
        assert is_open(rig, 1)


def test_nothing_opens_a_held_gpu_again(rig: GpuRig, kubelet: Kubelet) -> None:
    with_cards(rig, Fleet.of(3))
    driver = rig.driver()
    plugin = rig.plugin_of(driver)
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, uuids(0, 1, 2))
        hold(node, FakeGpu(0).pci)
        inits = rig.fake.calls()["nvmlInitWithFlags"]
        provocations: list[Callable[[], object]] = [
            lambda: rig.fake.xid(1, 31),
            lambda: list(plugin.metrics()),
            lambda: node.host.replace([rig.plugin_of(driver)]),  # by a reload
        ]
        for provoke in provocations:
            provoke()
            after = rig.fake.calls()["nvmlDeviceGetUUID"] + 9
            eventually(partial(is_called, rig, after))
            assert not is_open(rig, 0)
        assert inits == rig.fake.calls()["nvmlInitWithFlags"], "NVML was shut down for no reason"
        rig.pull(FakeGpu(2).pci)
        rig.fake.remove(2)
        node.wait_for(GPU, uuids(1), uuids(0, 2))
        rig.fake.add(FakeGpu(2))  # by a hot plug
        rig.has_card(FakeGpu(2).pci, driver="nvidia")
        node.wait_for(GPU, uuids(1, 2), uuids(0))
        assert not is_open(rig, 0)


def test_a_gpu_is_not_opened_by_a_start_while_it_is_held(rig: GpuRig, kubelet: Kubelet) -> None:
    with_cards(rig, Fleet.of(2))
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(0, 1))
        hold(node, uuid(0))
    rig.close()
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(1), uuids(0))
        eventually(lambda: state(node) == "let go")
        assert not is_open(rig, 0)
        rig.fake.fail("nvmlDeviceGetUUID", 16, gpu=0)  # it needs a reset still
        with pytest.raises(dp.DevicePluginError, match="stays held: it is not ready"):
            ask(node, "release", uuid(0))
        eventually(lambda: state(node) == "let go" and not is_open(rig, 0))
        rig.fake.mend()
        ask(node, "release", uuid(0))
        node.wait_for(GPU, uuids(0, 1))


def test_a_held_gpu_that_is_elsewhere_on_the_bus_after_a_reboot_costs_no_other_gpu(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    with_cards(rig, Fleet.of(2))
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(0, 1))
        hold(node, uuid(0))
    rig.close()
    rig.has(Fleet(tuple(FakeGpu(slot, values={"uuid": uuid(1 - slot)}) for slot in (0, 1))))
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(1), uuids(0))
        eventually(lambda: is_open(rig, 0) and not is_open(rig, 1))
        eventually(lambda: state(node) == "let go")
        node.wait_for(GPU, uuids(1), uuids(0))


def test_the_release_of_a_gpu_that_was_never_let_go_interrupts_no_other(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    with_cards(rig, Fleet.of(2))
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(0, 1))
        node.allocate(uuid(0))
        inits = rig.fake.calls()["nvmlInitWithFlags"]
        ask(node, "hold", uuid(0))
        eventually(lambda: state(node) == "waiting for its users")
        ask(node, "release", uuid(0))
        node.wait_for(GPU, uuids(0, 1))
        assert inits == rig.fake.calls()["nvmlInitWithFlags"]


def test_a_gpu_is_not_let_go_while_a_pod_has_it(rig: GpuRig, kubelet: Kubelet) -> None:
    with_cards(rig, Fleet.of(1))
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(0))
        node.allocate(uuid(0))
        ask(node, "hold", uuid(0))
        with pytest.raises(grpc.RpcError, match=f"held: {REASON}"):
            node.allocate(uuid(0))
        node.wait_for(GPU, set(), uuids(0))
        eventually(lambda: state(node) == "waiting for its users")
        assert is_open(rig, 0)


def test_a_gpu_is_not_let_go_while_another_process_has_it(rig: GpuRig, kubelet: Kubelet) -> None:
    with_cards(rig, Fleet.of(1))
    program = f"f = open({str(rig.roots.dev / 'nvidia0')!r}); print(flush=True); input()"
    with (
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child,
        running(rig, kubelet) as node,
    ):
        assert child.stdout
        assert child.stdin
        assert child.stdout.readline()
        node.wait_for(GPU, uuids(0))
        ask(node, "hold", uuid(0))
        eventually(lambda: f"({child.pid})" in state(node))
        assert state(node).startswith("not let go: its device node is still open in python")
        child.stdin.close()
        child.wait()
        eventually(lambda: state(node) == "let go")


def test_a_gpu_is_not_let_go_while_its_mps_daemon_runs(rig: GpuRig, kubelet: Kubelet) -> None:
    with_cards(rig, Fleet.of(1))
    pipe = rig.roots.mps / GPU / "pipe"
    pipe.mkdir(parents=True)
    sharing = {"mps": {"resources": [{"name": GPU, "replicas": 2}]}}
    shared: dict[str, Any] = {"sharing": sharing, "mps_root": rig.roots.mps}
    with socket.socket(socket.AF_UNIX) as daemon:
        with ShortPath(pipe) as short:
            daemon.bind(f"{short}/control")
        daemon.listen()
        with running(rig, kubelet, **shared) as node:
            shares = {f"{uuid(0)}::{number}" for number in range(2)}
            node.wait_for(GPU, shares)
            ask(node, "hold", uuid(0))
            node.wait_for(GPU, set(), shares)
            expected = f"not let go: the MPS control daemon {GPU} has it open"
            eventually(lambda: state(node) == expected)
            daemon.shutdown(socket.SHUT_RDWR)
            daemon.close()
            eventually(lambda: state(node) == "let go")
            assert not is_open(rig, 0)


def test_the_mps_daemon_of_a_held_gpu_ends_and_the_gpu_is_let_go(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    with_cards(rig, Fleet.of(2))
    wanted, there = rig.roots.mps / WANTED, rig.roots.mps / RUNNING
    sharing = {"mps": {"resources": [{"name": GPU, "replicas": 2}]}}
    shared: dict[str, Any] = {"sharing": sharing, "mps_root": rig.roots.mps}
    with alive(rig.roots.mps), running(rig, kubelet, **shared) as node:
        eventually(lambda: len(read(wanted) or ()) == 2)
        both = read(wanted) or {}
        node.wait_for(GPU, set(), {f"{uuid(slot)}::{share}" for slot in (0, 1) for share in (0, 1)})
        write(there, both)  # as gpu-mps-daemon does
        ask(node, "hold", uuid(0))
        names = [f"{GPU}/{uuid(slot)}" for slot in (0, 1)]
        eventually(lambda: [*(read(wanted) or ())] == names[1:])
        expected = f"not let go: the MPS control daemon {names[0]} has it open"
        eventually(lambda: state(node) == expected)
        write(there, {names[1]: both[names[1]]})
        eventually(lambda: state(node) == "let go")


@pytest.mark.slow
def test_a_gpu_is_let_go_once_all_its_mig_devices_are_held(rig: GpuRig, kubelet: Kubelet) -> None:
    migs = (FakeMig(1, "1g.5gb"), FakeMig(2, "1g.5gb"))
    with_cards(rig, Fleet.of(2, migs=migs))
    name = "nvidia.com/mig-1g.5gb"
    first, second = (one.uuid(0) for one in migs)
    others = {one.uuid(1) for one in migs}
    with running(rig, kubelet, mig_strategy="mixed") as node:
        node.wait_for(name, {first, second} | others)
        hold(node, first)  # only pods are kept off it
        node.wait_for(name, {second} | others, {first})
        assert is_open(rig, 0)
        ask(node, "release", first)
        with pytest.raises(dp.DevicePluginError, match=r"matches 2 devices: .* name one, or --all"):
            ask(node, "hold", uuid(0))
        hold(node, uuid(0), all=True)
        node.wait_for(name, others, {first, second})
        eventually(lambda: not is_open(rig, 0))
        rig.fake.change(0, migs=(FakeMig(3, "1g.5gb"),))  # which is what it was held for
    rig.close()
    with running(rig, kubelet, mig_strategy="mixed") as node:
        new = FakeMig(3, "1g.5gb").uuid(0)
        node.wait_for(name, others, {first, second, new})
        eventually(lambda: state(node) == "let go" and not is_open(rig, 0))
        ask(node, "release", uuid(0))
        node.wait_for(name, others | {new}, {first, second})


def test_a_gpu_whose_driver_is_gone_is_released(rig: GpuRig, kubelet: Kubelet) -> None:
    with_cards(rig, Fleet.of(2))
    plugin: GpuPlugin = rig.plugin()
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, uuids(0, 1))
        hold(node, uuid(0))
        rig.pull(FakeGpu(0).pci)
        rig.fake.remove(0)
        ask(node, "release", uuid(0))
        node.wait_for(GPU, uuids(1), uuids(0))


def test_where_the_pci_bus_cannot_be_seen_no_gpu_is_let_go_and_none_is_lost(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    rig.has(Fleet.of(2)).has_nodes("nvidia0", "nvidia1")
    with running(rig, kubelet) as node:
        node.wait_for(GPU, uuids(0, 1))
        ask(node, "hold", uuid(0))
        expected = f"not let go: the GPUs on the PCI bus cannot be seen in {rig.roots.sys}"
        eventually(lambda: state(node) == expected)
        node.wait_for(GPU, uuids(1), uuids(0))
        after = rig.fake.calls()["nvmlDeviceGetUUID"] + 9
        eventually(partial(is_called, rig, after))
        node.wait_for(GPU, uuids(1), uuids(0))
