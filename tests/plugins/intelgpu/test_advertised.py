"""Which devices a container gets."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.kit.configuration import finished, of_text
from deviceplugin.kit.naming import Named, Naming, naming
from deviceplugin_intelgpu import IntelGpuPlugin, IntelGpuSettings, hosted
from deviceplugin_intelgpu.settings import DOMAIN
from discovered import found
from intelgpu.machines import DG1, FLEX, MAX, SMALL, TIGER_LAKE, TWO_DRIVERS, Card, Machine
from intelgpu.tree import Build, IntelTree, nodes

FOUR = Machine(DG1.cards[:4])


def ask(plugin: IntelGpuPlugin, free: Sequence[str], size: int, *required: str) -> list[str]:
    """Return what is preferred of the free devices."""
    known = {device.id: device for device in plugin.discover()}
    chosen = plugin.prefer(
        [known.get(one, dp.Device(one)) for one in (*free, *required)],
        [known[one] for one in required],
        size,
    )
    return [device.id for device in chosen]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", ["card0-0", "card1-0", "card2-0", "card3-0"]),
        ("balanced", ["card0-0", "card1-0", "card2-0", "card3-0"]),
        ("spread", ["card0-0", "card1-0", "card2-0", "card3-0"]),
        ("packed", ["card0-0", "card0-1", "card0-2", "card0-3"]),
    ],
)
def test_shares_are_given_by_the_policies_of_intels_plugin(
    build: Build, policy: str, expected: list[str]
) -> None:
    plugin = build(FOUR).plugin(shares=5, share_policy=policy, device_ids="card")
    free = [device.id for device in plugin.discover()]
    assert 20 == len(free)
    assert expected == sorted(ask(plugin, free, 4))


@pytest.mark.parametrize("ids", ["card", "address"])
def test_more_shares_than_the_kubelet_takes_are_not_made(build: Build, ids: str) -> None:
    plugin = build(FOUR).plugin(shares=100_000, device_ids=ids)
    assert [] == [*plugin.discover()]
    told = [one for one in plugin.shortfalls if "400000 shares have no room" in one]
    assert (4, 4) == (len(told), len(plugin.shortfalls))
    few = build(FOUR).plugin(shares=4096, device_ids=ids).discover()
    assert 4 * 4096 == len({device.id for device in few})


def test_ten_shares_are_in_natural_order(build: Build) -> None:
    plugin = build(FOUR).plugin(shares=12, share_policy="packed", device_ids="card")
    free = [device.id for device in plugin.discover()]
    assert [f"card0-{number}" for number in range(11)] == ask(plugin, free, 11)


def test_spread_takes_the_gpu_that_is_used_least(build: Build) -> None:
    plugin = build(FOUR).plugin(shares=2, device_ids="card")
    free = ["card0-1", "card1-1", "card2-0", "card2-1", "card3-1"]
    assert ["card2-0"] == ask(plugin, free, 1)


def test_none_takes_what_comes_first_of_as_many_gpus_as_can_be(build: Build) -> None:
    plugin = build(FOUR).plugin(shares=2, share_policy="none", device_ids="card")
    free = ["card3-0", "card3-1", "card1-1", "odd"]
    assert ["card3-0"] == ask(plugin, free, 1)
    assert ["card1-1", "card3-0"] == sorted(ask(plugin, free, 2))
    assert ["card3-0", "card3-1", "card1-1", "odd"] == sorted(ask(plugin, free, 4), key=free.index)
    assert ["card1-0", "card3-0"] == sorted(ask(plugin, ["card3-0", "card1-1"], 2, "card1-0"))


def test_virtual_functions_are_of_other_cards_first(build: Build) -> None:
    tree = build(SMALL)
    for address in ("0000:5e:00.0", "0000:86:00.0"):
        tree.divide(address, 3)
    plugin = tree.plugin(include=("xe",))
    free = [device.id for device in plugin.discover()]
    assert ["0000:5e:00.1", "0000:86:00.1"] == ask(plugin, free, 2)
    packed = tree.plugin(include=("xe",), share_policy="packed")
    assert ["0000:5e:00.1", "0000:5e:00.2"] == ask(packed, free, 2)


def test_whole_gpus_are_of_one_numa_node(build: Build) -> None:
    plugin = build(MAX).plugin()
    first, second, third, fourth, fifth = (f"0000:00:0{number}.0" for number in range(1, 6))
    assert [fourth, fifth] == ask(plugin, [first, fourth, fifth], 2)
    assert [second, third] == sorted(ask(plugin, [first, third], 2, second))
    assert 2 == len(ask(plugin, ["odd", first], 2))


def test_shares_of_the_other_resource_do_not_count(build: Build) -> None:
    machine = Machine((Card("0000:00:02.0", "9a49"), Card("0000:03:00.0", "e211", "xe")))
    plugin = build(machine).plugin(shares=2)
    assert ["0000:03:00.0::1"] == ask(plugin, ["0000:03:00.0::1"], 1)


PRESENT = "intel.feature.node.kubernetes.io/gpu=true"


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (TIGER_LAKE, "device-id.0300-9a49.count=1 device-id.0300-9a49.present=true"),
        (
            MAX,
            """device-id.0380-0bd5.count=8 device-id.0380-0bd5.present=true device.count=8
            family=Max_Series product=Max_1550""",
        ),
        (
            FLEX,
            """device-id.0380-56c0.count=2 device-id.0380-56c0.present=true device.count=2
            family=Flex_Series product=Flex_170""",
        ),
    ],
    ids=["tiger-lake", "max", "flex"],
)
def test_the_labels_are_those_of_intels_rules(
    build: Build, tmp_path: Path, machine: Machine, expected: str
) -> None:
    path = tmp_path / "features.d/intelgpu"
    build(machine).plugin(labels_file=path).discover()
    labels = [f"gpu.intel.com/{label}" for label in expected.split()]
    assert sorted([*labels, PRESENT]) == sorted(path.read_text().splitlines())


def test_labels_go_with_the_last_gpu(build: Build, tmp_path: Path) -> None:
    tree, path = build(SMALL), tmp_path / "labels"
    plugin = tree.plugin(labels_file=path)
    plugin.discover()
    assert "gpu.intel.com/device-id.0300-e211.count=2" in path.read_text().splitlines()
    for card in SMALL.cards:
        tree.vanish(card.address)
    plugin.discover()
    assert not path.exists()


FIRST, SECOND = (card.address for card in TWO_DRIVERS.cards)


@pytest.fixture
def tree(build: Build) -> IntelTree:
    return build(TWO_DRIVERS)


def swap(tree: IntelTree) -> None:
    """Have the two cards have each other's number."""
    before, chance = dict(tree.numbers), random.Random(1)
    while before == tree.numbers:
        tree.renumber(chance)


def owners(plugin: IntelGpuPlugin) -> dict[str, str]:
    return {one: str(device.attributes["pci"]) for one, device in found(plugin).items()}


def test_an_address_stays_when_cards_are_renumbered(tree: IntelTree) -> None:
    plugin = tree.plugin()
    assert ["/dev/dri/card0", "/dev/dri/renderD128"] == nodes(found(plugin)[FIRST])
    swap(tree)
    assert ["/dev/dri/card1", "/dev/dri/renderD129"] == nodes(found(plugin)[FIRST])
    assert {FIRST: FIRST, SECOND: SECOND} == owners(plugin)


def test_intels_ids_can_be_had(tree: IntelTree) -> None:
    assert {"card0-0": FIRST, "card1-0": SECOND} == owners(tree.plugin(device_ids="card"))
    shared = owners(tree.plugin(device_ids="card", shares=2))
    assert ["card0-0", "card0-1", "card1-0", "card1-1"] == [*shared]


def test_the_number_of_a_card_is_not_given_to_another_one(tree: IntelTree) -> None:
    plugin = tree.plugin(device_ids="card")
    before = owners(plugin)
    swap(tree)
    assert {} == owners(plugin) == owners(tree.plugin(device_ids="card"))
    assert f"{FIRST}: card1 was {SECOND} until now: reboot the node" in plugin.shortfalls
    swap(tree)
    assert before == owners(plugin)


def test_a_card_without_a_number_has_no_such_id(tree: IntelTree) -> None:
    tree.hardware.unplug(f"pci0042:00/{FIRST}/drm/card0")
    assert ["card1-0"] == [*owners(tree.plugin(device_ids="card"))]
    assert [FIRST, SECOND] == [*owners(tree.plugin())]


BATTLEMAGE = Machine(
    (
        Card("0000:03:00.0", "e211", "xe"),
        Card("0000:04:00.0", "e223", "xe", most=7, count=2),
        Card("0000:05:00.0", "56c0", "i915"),
    )
)


B60 = "{gpus: [{pattern: e211, name: b60}, {pattern: '0xE223', name: b70}]}"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("{}", {"gpu.intel.com/xe": 3, "gpu.intel.com/i915": 1}),
        (B60, {"gpu.intel.com/b60": 1, "gpu.intel.com/b70": 2, "gpu.intel.com/i915": 1}),
        ("{gpus: [{pattern: i915, name: xe}]}", {"gpu.intel.com/xe": 4}),
        (
            "{gpus: [{pattern: e2*, name: x.org/b}, {pattern: e211, name: unused}]}",
            {"x.org/b": 3, "gpu.intel.com/i915": 1},
        ),
    ],
)
def test_resources_are_named_by_model(
    build: Build, names: str, expected: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    named = finished(of_text(names, "config.yaml"), naming(DOMAIN))
    plugin = build(BATTLEMAGE).plugin(resources=named)
    assert expected == Counter(device.resource for device in plugin.discover())
    assert ("unused" in names) == ("resource name unused" in caplog.text)
    offered = hosted().resources
    assert offered
    assert expected.keys() <= {*offered(plugin._settings)}


NAMED = {"resources": Naming((Named("*", "gpu.intel.com/monitoring"),))}
SPLIT = {"resource_name": "gpu.intel.com/{driver}_monitoring", "monitoring_mode": "split"}


@pytest.mark.parametrize(("key", "given"), [("resources", NAMED), ("resource-name", SPLIT)])
def test_gpus_cannot_have_the_resource_for_monitoring(key: str, given: dict[str, Any]) -> None:
    assert not IntelGpuSettings(**given).enable_monitoring
    why = rf"^{key}: gpu.intel.com/\w+ is for monitoring: use another name$"
    with pytest.raises(dp.ConfigError, match=why):
        IntelGpuSettings(enable_monitoring=True, **given)
