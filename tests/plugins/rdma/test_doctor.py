"""What the doctor says of network cards."""

from dataclasses import replace

import pytest

from deviceplugin.checks import Finding, Node
from deviceplugin_rdma import doctor
from rdma.plugin import Build
from rdma.tree import RdmaTree


@pytest.fixture
def tree(build: Build) -> RdmaTree:
    return build()


def findings(tree: RdmaTree) -> list[Finding]:
    return list(doctor.look(Node.at_root(tree.sys.parent)))


def bad(tree: RdmaTree) -> list[tuple[str, str]]:
    return [(one.verdict.value, one.found) for one in findings(tree) if one.verdict != "ok"]


def test_cards_that_can_be_used_are_ok(tree: RdmaTree) -> None:
    assert ["8 functions on the PCI bus, 5 with RDMA"] == [one.found for one in findings(tree)]


def test_a_function_without_a_driver_is_said(tree: RdmaTree) -> None:
    tree.bind("0000:3b:00.4", "")
    assert [("warning", "no driver: 0000:3b:00.4")] == bad(tree)


def test_missing_device_files_are_said(tree: RdmaTree) -> None:
    (tree.dev / "infiniband").rename(tree.dev / "old")
    (failed, verbs), (warned, manager) = bad(tree)
    assert ("failure", "warning") == (failed, warned)
    assert verbs.startswith("no verbs: mlx5_")
    assert "/dev/infiniband/rdma_cm does not exist" == manager


def test_a_link_that_is_down_is_said(tree: RdmaTree) -> None:
    tree.cable("0000:af:00.0", is_in=False)
    assert [("warning", "port 1 of mlx5_1 is DOWN")] == bad(tree)


def test_the_sysfs_of_a_pod_is_noticed(tree: RdmaTree) -> None:
    for address in tree.folders:
        tree.move_to_pod(address)
    assert [("warning", "sysfs shows none of any card")] == bad(tree)


def test_a_node_without_cards_is_ok_unless_it_is_asked_for(tree: RdmaTree) -> None:
    for port in tree.machine.ports:
        tree.unplug(port)
    node = Node.at_root(tree.sys.parent)
    assert ["none found"] == [one.found for one in doctor.look(node)]
    (asked,) = doctor.look(replace(node, plugins=frozenset({"rdma"})))
    assert "none found: no PCI device of class 0x02" == asked.found


def test_many_names_are_cut() -> None:
    assert "0, 1, 2, 3, 4, 5, 6, 7 and 2 more" == doctor._few([str(one) for one in range(10)])
