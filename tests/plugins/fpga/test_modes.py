"""What each mode offers: resources, ids, nodes in their order, and what a container gets."""

import random
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_fpga import FpgaPlugin, resource_names
from discovered import found
from fpga.trees import AFU, ALL_ONES, BOTH, DFL, INTERFACE, OTHER_AFU, FpgaTree

CE4_D84 = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
BFA_F7D = "fpga.intel.com/af-bfa.f7d.v6xNhR7oVv6MlYZc4buqLfffQFy9es9yIvFEsLk6zRg"
REGION = f"fpga.intel.com/region-{INTERFACE}"


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
    assert expected == resource_names.Aliases().af(interface, afu)
    assert 54 == len(expected.partition("/")[2])


# af: each port is a device, of what is programmed.


def test_two_ports_of_one_fme_are_two_devices_of_their_functions(any_tree: FpgaTree) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    first, other = any_tree.plugin("af").discover()
    ports = [f"{any_tree.words.port}{number}" for number in (0, 1)]
    assert (*ports, CE4_D84) == (first.id, other.id, first.resource)
    assert [[f"/dev/{port}"] for port in ports] == [paths(first), paths(other)]
    assert first.health
    assert {"pci": "0000:3b:00.0", "interface": INTERFACE, "afu": AFU} == first.attributes
    assert resource_names.Aliases().af(INTERFACE, OTHER_AFU) == other.resource


# region and regiondevel: each FME is a device with all its ports.


@pytest.mark.parametrize("mode", ["region", "regiondevel"])
def test_a_region_has_all_ports_and_for_development_the_fme(any_tree: FpgaTree, mode: str) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    words = any_tree.words
    (device,) = any_tree.plugin(mode).discover()
    fme, ports = f"{words.fme}0", [f"{words.port}0", f"{words.port}1"]
    expected = [*ports, fme] if mode == "regiondevel" else ports
    assert (fme, REGION) == (device.id, device.resource)
    assert [f"/dev/{name}" for name in expected] == paths(device)
    assert {"pci": "0000:3b:00.0", ports[0]: AFU, ports[1]: OTHER_AFU} == device.attributes


def test_ports_of_virtual_functions_are_with_their_fme(any_tree: FpgaTree) -> None:
    physical = any_tree.card()
    any_tree.fme(any_tree.region(physical, 0))
    for number in (1, 2):
        virtual = any_tree.card(f"0000:3b:00.{number}", physical=physical)
        any_tree.port(any_tree.region(virtual, number), number)
    words = any_tree.words
    (device,) = any_tree.plugin("regiondevel").discover()
    names = [f"{words.port}1", f"{words.port}2", f"{words.fme}0"]
    assert [f"/dev/{name}" for name in names] == paths(device)
    assert [f"{words.port}1", f"{words.port}2"] == list(found(any_tree.plugin("af")))


def test_a_port_that_does_not_say_what_it_has_is_still_part_of_its_region(tree: FpgaTree) -> None:
    (port,) = tree.simple(AFU)
    (port / "afu_id").unlink()
    (device,) = tree.plugin("region").discover()
    assert device.health
    assert {"pci": "0000:3b:00.0"} == device.attributes


# Hardware that does not answer.


def test_a_function_of_all_ones_is_unhealthy(any_tree: FpgaTree) -> None:
    any_tree.simple(ALL_ONES, AFU)
    bad, good = any_tree.plugin("af").discover()
    assert resource_names.Aliases().af(INTERFACE, ALL_ONES) == bad.resource
    reason = f"{any_tree.words.port}0: afu_id is all ones: the hardware does not answer"
    assert (reason, True) == (bad.health.reason, bool(good.health))


def test_an_interface_of_all_ones_is_unhealthy(any_tree: FpgaTree) -> None:
    region = any_tree.region(any_tree.card())
    any_tree.fme(region, 0, ALL_ONES)
    any_tree.port(region)
    (device,) = any_tree.plugin("region").discover()
    assert f"fpga.intel.com/region-{ALL_ONES}" == device.resource
    reason = f"{any_tree.words.fme}0: interface id is all ones: the hardware does not answer"
    assert reason == device.health.reason


# Topology.


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", dp.Topology([1])), ("-1", None), ("", None), ("x", None), ("1024", None)],
)
def test_the_numa_node_is_the_cards(
    tree: FpgaTree, text: str, expected: dp.Topology | None
) -> None:
    tree.simple(AFU)
    (tree.sys / "devices/pci0000:3a/0000:3b:00.0/numa_node").write_text(text)
    assert [expected] == [device.topology for device in tree.plugin("region").discover()]


ADDRESS = "0000:3b:00.0"


def functions(plugin: FpgaPlugin) -> dict[str, str]:
    """Return which function each device has, by id: here no two have the same."""
    return {one: str(device.attributes["afu"]) for one, device in found(plugin).items()}


def test_ports_are_numbered_by_their_card(any_tree: FpgaTree) -> None:
    any_tree.simple(AFU, OTHER_AFU, number=3)
    plugin = any_tree.plugin("af", device_ids="address")
    assert {f"{ADDRESS}-port0": AFU, f"{ADDRESS}-port1": OTHER_AFU} == functions(plugin)
    nodes = [node.host_path for one in found(plugin).values() for node in one.nodes]
    assert [f"/dev/{any_tree.words.port}3{number}" for number in (0, 1)] == nodes


def test_engines_have_the_address_of_their_card(any_tree: FpgaTree) -> None:
    any_tree.simple(AFU, number=7)
    plugin = any_tree.plugin("region", device_ids="address")
    (device,) = plugin.discover()
    assert f"{ADDRESS}-fme" == device.id
    plugin.start(str(device.resource))
    assert (f"intel.cdi.k8s.io/fpga={device.id}",) == plugin.allocate([device]).cdi_names
    expected = [f"intel.cdi.k8s.io-fpga-{device.id}.yaml"]
    assert expected == [path.name for path in any_tree.cdi.iterdir()]
    (of_development,) = any_tree.plugin("regiondevel", device_ids="address").discover()
    assert device.id == of_development.id


def test_a_port_of_a_virtual_function_has_its_address(tree: FpgaTree) -> None:
    (port,) = tree.simple(AFU)
    virtual = tree.region(tree.card("0000:3b:00.1", physical=port.parents[2]), 1)
    tree.port(virtual, 9, OTHER_AFU, on_fme=1)
    assert {f"{ADDRESS}-port0": AFU, "0000:3b:00.1-port1": OTHER_AFU} == functions(
        tree.plugin("af", device_ids="address")
    )


def test_what_has_no_id_of_its_own_is_skipped(
    tree: FpgaTree, caplog: pytest.LogCaptureFixture
) -> None:
    region = tree.region(tree.card())
    tree.fme(region)
    tree.port(region, 0, AFU, on_fme=0)
    tree.port(region, 1, AFU, on_fme=0)
    (tree.port(region, 2, AFU) / "id").write_text("many\n")
    tree.port(region, 3, AFU, on_fme=3)
    assert {f"{ADDRESS}-port3"} == found(tree.plugin("af", device_ids="address")).keys()
    problems = sorted(str(vars(one)["problem"]) for one in caplog.records)
    assert [
        f"{ADDRESS}-port0: not the id of one device: dfl-port.0, dfl-port.1",
        "dfl-port.2: id: 'many' is not a number",
    ] == problems
    assert 4 == len(found(tree.plugin("af")))


def test_two_engines_of_one_card_are_not_told_apart(tree: FpgaTree) -> None:
    card = tree.card()
    for number in (0, 1):
        region = tree.region(card, number)
        tree.fme(region, number)
        tree.port(region, number, on_fme=number)
    assert {} == found(tree.plugin("region", device_ids="address"))
    assert 2 == len(found(tree.plugin("af", device_ids="address")))


@pytest.mark.parametrize(("seed", "driver"), [*enumerate([*sorted(BOTH), *sorted(BOTH)])])
def test_no_boot_moves_an_id_to_another_device(tmp_path: Path, seed: int, driver: str) -> None:
    chance = random.Random(seed)
    cards = [f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x10 + chance.randint(2, 6))]
    ports = {card: chance.randint(1, 3) for card in cards}
    before: dict[str, str] = {}
    moved = False
    names: dict[str, str] = {}
    for boot in range(4):
        tree = FpgaTree(tmp_path / f"boot{boot}", BOTH[driver])
        numbers = iter(chance.sample(range(100), sum(ports.values())))
        present = [card for card in cards if boot == 0 or chance.random() > 0.2]
        for number, card in enumerate(chance.sample(present, len(present))):
            region = tree.region(tree.card(card), number)
            tree.fme(region, number, *([INTERFACE] * (ports[card] if tree.words is DFL else 1)))
            for place in chance.sample(range(ports[card]), ports[card]):
                function = f"{cards.index(card):016x}{place:016x}"
                tree.port(region, next(numbers), function, on_fme=place)
        now = functions(tree.plugin(device_ids="address"))
        assert len(now) == sum(ports[card] for card in present)
        assert {one: before.get(one, function) for one, function in now.items()} == now
        before |= now
        by_kernel = functions(tree.plugin())
        moved |= any(names.get(one, function) != function for one, function in by_kernel.items())
        names |= by_kernel
    if seed == 0:
        assert moved, "the kernel's names move: the test shuffles enough"
