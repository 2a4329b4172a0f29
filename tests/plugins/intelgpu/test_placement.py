"""Which devices a container gets."""

from collections.abc import Sequence

import pytest

import deviceplugin as dp
from deviceplugin_intelgpu import IntelGpuPlugin
from intelgpu.machines import DG1, MAX, SMALL, Card, Machine
from intelgpu.plugin import Build, Make

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
    build: Build, make: Make, policy: str, expected: list[str]
) -> None:
    plugin = make(build(FOUR), shares=5, share_policy=policy, device_ids="card")
    free = [device.id for device in plugin.discover()]
    assert 20 == len(free)
    assert expected == sorted(ask(plugin, free, 4))


def test_ten_shares_are_in_natural_order(build: Build, make: Make) -> None:
    plugin = make(build(FOUR), shares=12, share_policy="packed", device_ids="card")
    free = [device.id for device in plugin.discover()]
    assert [f"card0-{number}" for number in range(11)] == ask(plugin, free, 11)


def test_spread_takes_the_gpu_that_is_used_least(build: Build, make: Make) -> None:
    plugin = make(build(FOUR), shares=2, device_ids="card")
    free = ["card0-1", "card1-1", "card2-0", "card2-1", "card3-1"]
    assert ["card2-0"] == ask(plugin, free, 1)


def test_none_takes_what_comes_first_of_as_many_gpus_as_can_be(build: Build, make: Make) -> None:
    plugin = make(build(FOUR), shares=2, share_policy="none", device_ids="card")
    free = ["card3-0", "card3-1", "card1-1", "odd"]
    assert ["card3-0"] == ask(plugin, free, 1)
    assert ["card1-1", "card3-0"] == sorted(ask(plugin, free, 2))
    assert ["card3-0", "card3-1", "card1-1", "odd"] == sorted(ask(plugin, free, 4), key=free.index)
    assert ["card1-0", "card3-0"] == sorted(ask(plugin, ["card3-0", "card1-1"], 2, "card1-0"))


def test_virtual_functions_are_of_other_cards_first(build: Build, make: Make) -> None:
    tree = build(SMALL)
    for address in ("0000:5e:00.0", "0000:86:00.0"):
        tree.divide(address, 3)
    plugin = make(tree, include=("xe",))
    free = [device.id for device in plugin.discover()]
    assert ["0000:5e:00.1", "0000:86:00.1"] == ask(plugin, free, 2)
    packed = make(tree, include=("xe",), share_policy="packed")
    assert ["0000:5e:00.1", "0000:5e:00.2"] == ask(packed, free, 2)


def test_whole_gpus_are_of_one_numa_node(build: Build, make: Make) -> None:
    plugin = make(build(MAX))
    free = ["0000:00:01.0", "0000:00:04.0", "0000:00:05.0"]
    assert free[1:] == ask(plugin, free, 2)
    near = ask(plugin, ["0000:00:01.0", "0000:00:03.0"], 2, "0000:00:02.0")
    assert ["0000:00:02.0", "0000:00:03.0"] == sorted(near)
    assert 2 == len(ask(plugin, ["odd", "0000:00:01.0"], 2))


def test_shares_of_the_other_resource_do_not_count(build: Build, make: Make) -> None:
    machine = Machine((Card("0000:00:02.0", "9a49"), Card("0000:03:00.0", "e211", "xe")))
    plugin = make(build(machine), shares=2)
    assert ["0000:03:00.0::1"] == ask(plugin, ["0000:03:00.0::1"], 1)


@pytest.mark.parametrize("count", [0, 1001])
def test_a_number_of_shares_that_is_none_is_refused(build: Build, make: Make, count: int) -> None:
    with pytest.raises(dp.ConfigError, match=rf"^shares: {count} is not a number of shares"):
        make(build(), shares=count)
