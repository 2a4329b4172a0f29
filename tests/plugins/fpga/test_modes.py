"""What each mode offers: resources, ids, nodes in their order, and what a container gets."""

import pytest

import deviceplugin as dp
from deviceplugin_fpga import resource_names
from fpga.plugin import Make
from fpga.trees import AFU, ALL_ONES, INTERFACE, OTHER_AFU, FpgaTree

CE4_D84 = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
BFA_F7D = "fpga.intel.com/af-bfa.f7d.v6xNhR7oVv6MlYZc4buqLfffQFy9es9yIvFEsLk6zRg"
REGION = f"fpga.intel.com/region-{INTERFACE}"


def found(plugin: dp.Plugin) -> dict[str, dp.Device]:
    return {device.id: device for device in plugin.discover()}


def paths(device: dp.Device) -> list[str]:
    assert {"rw"} == {node.permissions for node in device.nodes}
    assert [node.host_path for node in device.nodes] == [
        node.container_path for node in device.nodes
    ]
    return [node.host_path for node in device.nodes]


# Names.


@pytest.mark.parametrize(
    ("interface", "afu", "expected"),
    [
        (INTERFACE, AFU, CE4_D84),
        ("bfac4d851ee856fe8c95865ce1bbaa2d", OTHER_AFU, BFA_F7D),
        (ALL_ONES, ALL_ONES, f"fpga.intel.com/af-fff.fff.{'_' * 42}8"),
    ],
)
def test_names_of_functions_are_those_of_the_reference(
    interface: str, afu: str, expected: str
) -> None:
    assert expected == resource_names.af(interface, afu)
    assert 54 == len(expected.partition("/")[2])


# af: each port is a device, of what is programmed.


def test_a_port_is_offered_by_what_is_programmed(any_tree: FpgaTree, make: Make) -> None:
    any_tree.simple(AFU)
    port = f"{any_tree.words.port}0"
    (device,) = make("af").discover()
    assert (port, CE4_D84, [f"/dev/{port}"]) == (device.id, device.resource, paths(device))
    assert device.health
    assert {"pci": "0000:3b:00.0", "interface": INTERFACE, "afu": AFU} == device.attributes


def test_two_ports_of_one_fme_are_two_devices_of_their_functions(
    any_tree: FpgaTree, make: Make
) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    devices = found(make("af"))
    words = any_tree.words
    assert [f"{words.port}0", f"{words.port}1"] == list(devices)
    assert [resource_names.af(INTERFACE, AFU), resource_names.af(INTERFACE, OTHER_AFU)] == [
        device.resource for device in devices.values()
    ]


def test_two_ports_with_one_function_are_one_resource(any_tree: FpgaTree, make: Make) -> None:
    any_tree.simple(AFU, AFU)
    assert [CE4_D84] * 2 == [device.resource for device in make("af").discover()]


# region and regiondevel: each FME is a device with all its ports.


@pytest.mark.parametrize("mode", ["region", "regiondevel"])
def test_a_region_has_all_ports_and_for_development_the_fme(
    any_tree: FpgaTree, make: Make, mode: str
) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    words = any_tree.words
    (device,) = make(mode).discover()
    fme, ports = f"{words.fme}0", [f"{words.port}0", f"{words.port}1"]
    expected = [*ports, fme] if mode == "regiondevel" else ports
    assert (fme, REGION) == (device.id, device.resource)
    assert [f"/dev/{name}" for name in expected] == paths(device)
    assert {"pci": "0000:3b:00.0", ports[0]: AFU, ports[1]: OTHER_AFU} == device.attributes


def test_cards_of_one_interface_are_one_resource(any_tree: FpgaTree, make: Make) -> None:
    any_tree.simple(AFU)
    any_tree.simple(AFU, address="0000:5e:00.0", number=1)
    devices = list(make("region").discover())
    assert [REGION, REGION] == [device.resource for device in devices]
    assert [f"{any_tree.words.fme}0", f"{any_tree.words.fme}1"] == [one.id for one in devices]


def test_ports_of_virtual_functions_are_with_their_fme(any_tree: FpgaTree, make: Make) -> None:
    physical = any_tree.card()
    any_tree.fme(any_tree.region(physical, 0))
    for number in (1, 2):
        virtual = any_tree.card(f"0000:3b:00.{number}", physical=physical)
        any_tree.port(any_tree.region(virtual, number), number)
    words = any_tree.words
    (device,) = make("regiondevel").discover()
    names = [f"{words.port}1", f"{words.port}2", f"{words.fme}0"]
    assert [f"/dev/{name}" for name in names] == paths(device)
    assert [f"{words.port}1", f"{words.port}2"] == list(found(make("af")))


def test_a_port_that_does_not_say_what_it_has_is_still_part_of_its_region(
    tree: FpgaTree, make: Make
) -> None:
    (port,) = tree.simple(AFU)
    (port / "afu_id").unlink()
    (device,) = make("region").discover()
    assert device.health
    assert {"pci": "0000:3b:00.0"} == device.attributes


# Hardware that does not answer.


def test_a_function_of_all_ones_is_unhealthy(any_tree: FpgaTree, make: Make) -> None:
    any_tree.simple(ALL_ONES, AFU)
    bad, good = make("af").discover()
    assert resource_names.af(INTERFACE, ALL_ONES) == bad.resource
    reason = f"{any_tree.words.port}0: afu_id is all ones: the hardware does not answer"
    assert (reason, True) == (bad.health.reason, bool(good.health))


@pytest.mark.parametrize("mode", ["region", "regiondevel"])
def test_an_interface_of_all_ones_is_unhealthy(any_tree: FpgaTree, make: Make, mode: str) -> None:
    region = any_tree.region(any_tree.card())
    any_tree.fme(region, 0, ALL_ONES)
    any_tree.port(region)
    (device,) = make(mode).discover()
    assert f"fpga.intel.com/region-{ALL_ONES}" == device.resource
    reason = f"{any_tree.words.fme}0: interface id is all ones: the hardware does not answer"
    assert reason == device.health.reason


# Topology.


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", dp.Topology([1])), ("-1", None), ("", None), ("x", None), ("1024", None)],
)
def test_the_numa_node_is_the_cards(
    tree: FpgaTree, make: Make, text: str, expected: dp.Topology | None
) -> None:
    tree.simple(AFU)
    (tree.sys / "devices/pci0000:3a/0000:3b:00.0/numa_node").write_text(text)
    assert [expected] == [device.topology for device in make("region").discover()]
