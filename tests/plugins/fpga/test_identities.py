"""Ids by PCI address stay with the hardware, however the kernel numbers it."""

import random
from pathlib import Path

import pytest

from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from discovered import found
from fpga.plugin import Make
from fpga.trees import AFU, BOTH, DFL, INTERFACE, OTHER_AFU, FpgaTree

ADDRESS = "0000:3b:00.0"


def functions(plugin: FpgaPlugin) -> dict[str, str]:
    """Return which function each device has, by id: here no two have the same."""
    return {one: str(device.attributes["afu"]) for one, device in found(plugin).items()}


def test_ports_are_numbered_by_their_card(any_tree: FpgaTree, make: Make) -> None:
    any_tree.simple(AFU, OTHER_AFU, number=3)
    plugin = make("af", device_ids="address")
    assert {f"{ADDRESS}-port0": AFU, f"{ADDRESS}-port1": OTHER_AFU} == functions(plugin)
    nodes = [node.host_path for one in found(plugin).values() for node in one.nodes]
    assert [f"/dev/{any_tree.words.port}3{number}" for number in (0, 1)] == nodes


@pytest.mark.parametrize("mode", ["region", "regiondevel"])
def test_engines_have_the_address_of_their_card(
    any_tree: FpgaTree, make: Make, tmp_path: Path, mode: str
) -> None:
    any_tree.simple(AFU, number=7)
    plugin = make(mode, device_ids="address")
    (device,) = plugin.discover()
    assert f"{ADDRESS}-fme" == device.id
    if mode == "region":
        plugin.start(str(device.resource))
        allocation = plugin.allocate([device])
        assert [f"intel.cdi.k8s.io/fpga={ADDRESS}-fme"] == list(allocation.cdi_names)
        assert [f"intel.cdi.k8s.io-fpga-{ADDRESS}-fme.yaml"] == [
            path.name for path in (tmp_path / "cdi").iterdir()
        ]


def test_a_port_of_a_virtual_function_has_its_address(tree: FpgaTree, make: Make) -> None:
    (port,) = tree.simple(AFU)
    virtual = tree.region(tree.card("0000:3b:00.1", physical=port.parents[2]), 1)
    tree.port(virtual, 9, OTHER_AFU, on_fme=1)
    assert {f"{ADDRESS}-port0": AFU, "0000:3b:00.1-port1": OTHER_AFU} == functions(
        make("af", device_ids="address")
    )


def test_what_has_no_id_of_its_own_is_skipped(
    tree: FpgaTree, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    region = tree.region(tree.card())
    tree.fme(region)
    tree.port(region, 0, AFU, on_fme=0)
    tree.port(region, 1, AFU, on_fme=0)
    (tree.port(region, 2, AFU) / "id").write_text("many\n")
    tree.port(region, 3, AFU, on_fme=3)
    assert {f"{ADDRESS}-port3"} == found(make("af", device_ids="address")).keys()
    problems = sorted(str(vars(one)["problem"]) for one in caplog.records)
    assert [
        f"{ADDRESS}-port0: not the id of one device: dfl-port.0, dfl-port.1",
        "dfl-port.2: id: 'many' is not a number",
    ] == problems
    assert 4 == len(found(make("af")))


def test_two_engines_of_one_card_are_not_told_apart(tree: FpgaTree, make: Make) -> None:
    card = tree.card()
    for number in (0, 1):
        region = tree.region(card, number)
        tree.fme(region, number)
        tree.port(region, number, on_fme=number)
    assert {} == found(make("region", device_ids="address"))
    assert 2 == len(found(make("af", device_ids="address")))


@pytest.mark.parametrize("driver", sorted(BOTH))
@pytest.mark.parametrize("seed", range(20))
def test_no_boot_moves_an_id_to_another_device(tmp_path: Path, driver: str, seed: int) -> None:
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
        settings = FpgaSettings(sysfs_dir=tree.sys, cdi_dir=tmp_path, device_ids="address")
        now = functions(FpgaPlugin(settings))
        assert len(now) == sum(ports[card] for card in present)
        assert {one: before.get(one, function) for one, function in now.items()} == now
        before |= now
        by_kernel = functions(FpgaPlugin(FpgaSettings(sysfs_dir=tree.sys, cdi_dir=tmp_path)))
        moved |= any(names.get(one, function) != function for one, function in by_kernel.items())
        names |= by_kernel
    if seed == 0:
        assert moved, "the kernel's names move: the test shuffles enough"
