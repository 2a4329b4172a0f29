"""An id never means another GPU, whatever happens to cards."""

import random

import pytest

from deviceplugin_intelgpu import IntelGpuPlugin
from discovered import found
from intelgpu.machines import TWO_DRIVERS
from intelgpu.plugin import Build, Make, nodes
from intelgpu.tree import IntelTree

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


def test_an_address_stays_when_cards_are_renumbered(tree: IntelTree, make: Make) -> None:
    plugin = make(tree)
    assert ["/dev/dri/card0", "/dev/dri/renderD128"] == nodes(found(plugin)[FIRST])
    swap(tree)
    assert ["/dev/dri/card1", "/dev/dri/renderD129"] == nodes(found(plugin)[FIRST])
    assert {FIRST: FIRST, SECOND: SECOND} == owners(plugin)


def test_intels_ids_can_be_had(tree: IntelTree, make: Make) -> None:
    assert {"card0-0": FIRST, "card1-0": SECOND} == owners(make(tree, device_ids="card"))
    shared = owners(make(tree, device_ids="card", shares=2))
    assert ["card0-0", "card0-1", "card1-0", "card1-1"] == [*shared]


def test_the_number_of_a_card_is_not_given_to_another_one(tree: IntelTree, make: Make) -> None:
    plugin = make(tree, device_ids="card")
    before = owners(plugin)
    swap(tree)
    assert {} == owners(plugin) == owners(make(tree, device_ids="card"))
    assert f"{FIRST}: card1 was {SECOND} until now: reboot the node" in plugin.shortfalls
    swap(tree)
    assert before == owners(plugin)


def test_a_card_without_a_number_has_no_such_id(tree: IntelTree, make: Make) -> None:
    tree.hardware.unplug(f"pci0042:00/{FIRST}/drm/card0")
    assert ["card1-0"] == [*owners(make(tree, device_ids="card"))]
    assert [FIRST, SECOND] == [*owners(make(tree))]
