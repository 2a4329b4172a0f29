"""A function is healthy if it can be used and its link is up, and is healthy again by itself."""

import errno
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from deviceplugin.checks import Node
from deviceplugin_rdma import doctor
from discovered import degraded, found, unhealthy
from hardware.healthy_node import write
from rdma.machines import DGX_H100
from rdma.tree import Build, RdmaTree

ROCE, FIRST, SECOND, VFIO = (f"0000:3b:00.{number}" for number in (0, 2, 3, 4))
IB, ICE = "0000:af:00.0", "0000:5e:00.0"
ALL = {"resourceList": [{"resourceName": "nic", "selectors": {"isRdma": False}}]}
RDMA = {"resourceList": [{"resourceName": "nic", "selectors": {"isRdma": True}}]}
SHARED = {"resourceList": [{"resourceName": "hca", "shares": 2}]}


def test_a_shared_card_follows_its_port(tree: RdmaTree) -> None:
    plugin = tree.plugin(SHARED)
    assert {} == unhealthy(plugin)
    tree.cable(ROCE, is_in=False)
    reason = "port 1 of mlx5_0 is DOWN"
    assert {f"{ROCE}::0": reason, f"{ROCE}::1": reason} == unhealthy(plugin)
    tree.cable(ROCE, is_in=True)
    assert {} == unhealthy(plugin)


@pytest.mark.parametrize("text", ["1: DOWN", "2: INIT", "3: ARMED"])
def test_an_infiniband_port_must_be_active(tree: RdmaTree, text: str) -> None:
    plugin = tree.plugin(ALL)
    tree.state(IB, text)
    down = f"port 1 of mlx5_1 is {text[3:]}"
    assert {IB: down} == unhealthy(plugin)
    second = tree.folders[IB] / "infiniband/mlx5_1/ports/2/state"
    second.parent.mkdir()
    for state, expected in (
        ("4: ACTIVE", {}),
        ("1: DOWN", {IB: f"{down}; port 2 of mlx5_1 is DOWN"}),
    ):
        second.write_text(f"{state}\n")
        assert expected == unhealthy(plugin)


def test_virtual_functions_follow_the_cable_of_their_card(tree: RdmaTree) -> None:
    plugin = tree.plugin(ALL)
    tree.state(FIRST, "1: DOWN")  # nobody has switched its interface on yet
    assert {} == unhealthy(plugin)
    tree.cable(ROCE, is_in=False)
    assert {} == unhealthy(tree.plugin(ALL, link_health="ignore"))
    reasons = unhealthy(plugin)
    assert {FIRST, SECOND, VFIO, "0000:3b:00.5"} == set(reasons)
    assert {"ens1f0np0: no carrier"} == set(reasons.values())
    tree.bind(ROCE, "")  # nobody knows of its cable
    assert {} == unhealthy(plugin)
    tree.bind(ROCE, "mlx5_core")
    tree.cable(ROCE, is_in=True)
    assert {} == unhealthy(plugin)


def test_an_interface_that_is_switched_off_says_nothing_of_its_cable(tree: RdmaTree) -> None:
    folder = tree.folders[ICE] / "net/ens3"
    (folder / "flags").write_text("0x1002\n")
    tree.kernel.faults[folder / "carrier"] = errno.EINVAL
    assert {} == unhealthy(tree.plugin(ALL))


@pytest.mark.parametrize("flags", ["0x", "0xzz", "0x" + "f" * 5000, ""])
def test_flags_that_are_no_number_say_nothing_and_cost_no_other(tree: RdmaTree, flags: str) -> None:
    tree.cable(ROCE, is_in=False)
    plugin = tree.plugin(ALL)
    before = unhealthy(plugin)
    (tree.folders[ICE] / "net/ens3/flags").write_text(f"{flags}\n")
    assert before == unhealthy(plugin)


def test_a_short_loss_of_the_link_changes_nothing(tree: RdmaTree) -> None:
    now = [0.0]
    patience = timedelta(seconds=5)
    plugin = tree.plugin(ALL, clock=lambda: now[0], link_patience=patience)
    assert {} == unhealthy(plugin)
    tree.cable(IB, is_in=False)
    assert {} == unhealthy(plugin)
    assert not plugin._is_due()
    now[0] = 5
    assert plugin._is_due()
    assert [IB] == [*unhealthy(plugin)]
    tree.cable(IB, is_in=True)
    assert [IB] == [*unhealthy(plugin)]
    now[0] = 10
    assert {} == unhealthy(plugin)


CHANGES: dict[str, Callable[[RdmaTree], object]] = {
    "state": lambda tree: tree.state(IB, "1: DOWN"),
    "carrier": lambda tree: (tree.folders[ROCE] / "net/ens1f0np0/carrier").write_text("0\n"),
    "name": lambda tree: tree.rename(FIRST, "vf0"),
    "pod": lambda tree: tree.move_to_pod(FIRST),
    "rdma": lambda tree: (tree.folders[VFIO] / "infiniband/mlx5_9").mkdir(parents=True),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_without_events_are_noticed(tree: RdmaTree, what: str) -> None:
    plugin = tree.plugin(ALL)
    found(plugin)
    assert not plugin._is_due()
    CHANGES[what](tree)
    assert plugin._is_due()
    found(plugin)
    assert not plugin._is_due()


def test_a_port_that_cannot_be_read_says_why(tree: RdmaTree) -> None:
    path = tree.folders[IB] / "infiniband/mlx5_1/ports/1/state"
    tree.kernel.faults[path] = errno.EIO
    assert {IB: f"{path}: Input/output error"} == unhealthy(tree.plugin(ALL))
    tree.kernel.faults[path.parents[1]] = errno.EIO  # it is not even known which ports there are
    assert {} == unhealthy(tree.plugin(ALL))


def test_an_infiniband_port_with_a_bad_link_is_degraded(tree: RdmaTree) -> None:
    plugin = tree.plugin(ALL)
    port = tree.folders[IB] / "infiniband/mlx5_1/ports/1"
    (port / "phys_state").write_text("5: LinkUp\n")
    (port / "rate").write_text("100 Gb/sec (4X EDR)\n")
    assert {} == degraded(plugin)
    (port / "rate").write_text("100 Gb/sec (2X HDR)\n")  # a cable of two
    assert plugin._is_due()
    assert {} == degraded(plugin)
    (port / "rate").write_text("25 Gb/sec (1X EDR)\n")
    (port / "phys_state").write_text("6: LinkErrorRecovery\n")
    recovering = "port 1 of mlx5_1: its link recovers from errors"
    expected = f"{recovering}; port 1 of mlx5_1: one lane, 25 Gb/sec (1X EDR)"
    assert {IB: expected} == degraded(plugin)
    tree.state(IB, "1: DOWN")
    assert {IB: "port 1 of mlx5_1 is DOWN"} == unhealthy(plugin)
    port = tree.folders[ROCE] / "infiniband/mlx5_0/ports/1"
    (port / "rate").write_text("25 Gb/sec (1X EDR)\n")  # Ethernet may have one lane
    assert {} == degraded(plugin)


def test_a_card_that_has_lost_lanes_is_degraded(build: Build) -> None:
    tree, address = build(DGX_H100), "0000:40:00.0"
    folder = tree.folders[address]
    for place, width, most in ((folder, 8, 16), (folder.parent, 8, 16)):
        (place / "current_link_width").write_text(f"{width}\n")
        (place / "max_link_width").write_text(f"{most}\n")
    expected = {address: f"PCIe link of {address}: 8 of 16 lanes"}
    assert expected == degraded(tree.plugin(ALL))
    assert {} == degraded(tree.plugin(ALL, link_health="ignore"))
    (folder.parent / "max_link_width").write_text("8\n")
    assert {} == degraded(tree.plugin(ALL))


def test_a_missing_node_is_said_at_once(tree: RdmaTree) -> None:
    plugin = tree.plugin(RDMA)
    assert {} == unhealthy(plugin)
    (tree.dev / "infiniband/uverbs1").unlink()
    assert {FIRST: f"{tree.dev}/infiniband/uverbs1 does not exist"} == unhealthy(plugin)
    (tree.dev / "infiniband/rdma_cm").unlink()
    assert [FIRST] == [*unhealthy(plugin)]


def test_rdma_devices_without_verbs_are_said(tree: RdmaTree) -> None:
    plugin = tree.plugin(RDMA)
    (tree.folders[FIRST] / "infiniband_verbs").rename(tree.folders[FIRST] / "old")
    assert {FIRST: "mlx5_2 has no verbs: load ib_uverbs"} == unhealthy(plugin)


def test_a_vfio_function_needs_its_group_for_itself(tree: RdmaTree) -> None:
    plugin = tree.plugin(ALL)
    (tree.sys / "kernel/iommu_groups/42/devices" / FIRST).symlink_to(tree.folders[FIRST])
    reason = f"IOMMU group 42 is not viable: {FIRST} has the driver mlx5_core"
    assert {VFIO: reason} == unhealthy(plugin)
    (tree.folders[VFIO] / "iommu_group").unlink()
    reason = f"{VFIO} has no IOMMU group: enable the IOMMU in firmware and kernel"
    assert {VFIO: reason} == unhealthy(plugin)


def test_vhost_nodes_must_be_there_if_they_are_needed(tree: RdmaTree) -> None:
    needs = {"needVhostNet": True, "drivers": ["ice"]}
    plugin = tree.plugin({"resourceList": [{"resourceName": "nic", "selectors": needs}]})
    expected = f"{tree.dev}/vhost-net does not exist; {tree.dev}/net/tun does not exist"
    assert {ICE: expected} == unhealthy(plugin)


def test_a_set_is_healthy_while_any_of_it_is(tree: RdmaTree) -> None:
    selectors = {"vendors": ["15b3"], "deviceIDs": ["101d", "101b"]}
    shared = {"configList": [{"resourceName": "hca", "rdmaHcaMax": 1, "selectors": selectors}]}
    plugin = tree.plugin(shared)
    tree.cable(IB, is_in=False)
    assert {} == unhealthy(plugin)
    assert {"hca::0": f"{IB}: port 1 of mlx5_1 is DOWN"} == degraded(plugin)
    allocation = plugin.allocate(list(found(plugin).values()))
    assert ["uverbs0"] == [
        name for node in allocation.nodes if "uverbs" in (name := Path(node.host_path).name)
    ]
    tree.cable(ROCE, is_in=False)
    assert {
        "hca::0": f"{ROCE}: port 1 of mlx5_0 is DOWN; {IB}: port 1 of mlx5_1 is DOWN"
    } == unhealthy(plugin)


def bad(tree: RdmaTree) -> list[tuple[str, str]]:
    found = doctor.look(Node.at_root(tree.sys.parent))
    return [(one.verdict.value, one.found) for one in found if one.verdict != "ok"]


def test_the_doctor_says_what_keeps_cards_from_being_used(tree: RdmaTree, build: Build) -> None:
    (fine,) = doctor.look(Node.at_root(tree.sys.parent))
    assert "8 functions on the PCI bus, 5 with RDMA" == fine.found
    tree.bind("0000:3b:00.4", "")
    tree.cable(IB, is_in=False)
    expected = [("warning", "no driver: 0000:3b:00.4"), ("warning", "port 1 of mlx5_1 is DOWN")]
    assert expected == bad(tree)
    without_nodes = build()
    (without_nodes.dev / "infiniband").rename(without_nodes.dev / "old")
    (failed, verbs), manager = bad(without_nodes)
    assert ("failure", True) == (failed, verbs.startswith("no verbs: mlx5_"))
    assert ("warning", "/dev/infiniband/rdma_cm does not exist") == manager
    of_pod = build()
    for address in of_pod.folders:
        of_pod.move_to_pod(address)
    assert [("warning", "sysfs shows none of any card")] == bad(of_pod)


def test_a_node_without_cards_is_ok_unless_it_is_asked_for(tree: RdmaTree) -> None:
    for port in tree.machine.ports:
        tree.unplug(port)
    node = Node.at_root(tree.sys.parent)
    assert ["none found"] == [one.found for one in doctor.look(node)]
    (asked,) = doctor.look(replace(node, plugins=frozenset({"rdma"})))
    assert "none found: no PCI device of class 0x02" == asked.found


def test_ordinary_cards_are_no_reason_for_a_warning_unless_it_is_asked_for(tmp_path: Path) -> None:
    card = tmp_path / "sys/bus/pci/devices/0000:00:03.0"
    for name, text in {"class": "0x020000", "vendor": "0x1af4", "device": "0x1041"}.items():
        write(card / name, text)
    (card / "driver").symlink_to("../../drivers/virtio-pci")
    node = Node.at_root(tmp_path)
    assert ["ok"] == [one.verdict for one in doctor.look(node)]
    asked = replace(node, plugins=frozenset({"rdma"}))
    assert ["ok", "warning"] == [one.verdict for one in doctor.look(asked)]
