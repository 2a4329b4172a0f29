"""Many changes of a node: no device pays for another one, and no id moves."""

import errno
import random
from collections.abc import Callable

import pytest

import deviceplugin as dp
from amd.machines import SMALL
from amd.tree import AmdTree, Build, Make

STYLES = ("SPX", "DPX", "QPX")


class Chaos:
    """Changes a tree at random, and knows what is the matter with each GPU."""

    def __init__(self, tree: AmdTree, chance: random.Random) -> None:
        self.tree = tree
        self.chance = chance
        self.styles = dict.fromkeys(SMALL.addresses, "SPX")
        self.damaged: set[str] = set()
        """GPUs of which something cannot be read now."""

    def change(self) -> None:
        deeds: list[Callable[[str], None]] = [
            self.plug,
            self.divide,
            self.hide_register,
            self.hide_node,
            self.hide_style,
            self.garble,
            self.mend,
        ]
        self.chance.choice(deeds)(self.chance.choice(SMALL.addresses))

    def plug(self, address: str) -> None:
        """Take a GPU away, or have it back."""
        self.heal()
        if address in self.tree.cards:
            self.tree.vanish(address)
            return
        self.tree.plug_in(address)
        self.styles[address] = "SPX"
        self.tree.topology()

    def divide(self, address: str) -> None:
        if address in self.tree.cards:
            self.heal()
            self.styles[address] = self.chance.choice(STYLES)
            self.tree.divide(address, self.styles[address])

    def hide_register(self, address: str) -> None:
        self.hide(address, f"ras/{self.chance.choice(('umc', 'gfx'))}_err_count")

    def hide_style(self, address: str) -> None:
        self.hide(address, "current_compute_partition")

    def hide(self, address: str, name: str) -> None:
        if card := self.tree.cards.get(address):
            error = self.chance.choice((errno.EIO, errno.ENODEV, errno.EPERM))
            self.tree.kernel.faults[card.folder / name] = error
            self.damaged.add(address)

    def hide_node(self, address: str) -> None:
        if card := self.tree.cards.get(address):
            node = self.tree.node(address, self.chance.randrange(card.parts))
            place = self.tree.folder(node) / "properties"
            self.tree.kernel.faults[place] = self.chance.choice((errno.EIO, errno.EPERM))
            self.damaged.add(address)

    def garble(self, address: str) -> None:
        if card := self.tree.cards.get(address):
            node = self.tree.node(address, self.chance.randrange(card.parts))
            text = self.chance.choice(("", "simd_count", "simd_count 4\n", "drm_render_minor x"))
            (self.tree.folder(node) / "properties").write_text(text)
            self.damaged.add(address)

    def mend(self, _address: str) -> None:
        self.heal()
        self.tree.topology()

    def heal(self) -> None:
        """Have everything be readable, once KFD writes its topology again."""
        self.tree.kernel.faults.clear()
        self.damaged.clear()


def meaning(device: dp.Device) -> tuple[str, ...]:
    """Return what a container gets: the same of an id for as long as its GPU is there."""
    return tuple(node.host_path for node in device.nodes)


@pytest.mark.parametrize(
    ("seed", "changes"), [(0, 50), pytest.param(1, 500, marks=pytest.mark.slow)]
)
def test_no_change_costs_another_device_or_moves_an_id(
    build: Build, make: Make, seed: int, changes: int
) -> None:
    tree = build(links=False)
    plugin = make(tree, resource_naming_strategy="mixed", state_file=None)
    chaos = Chaos(tree, random.Random(seed))
    for _ in range(changes):
        chaos.change()
        found = list(plugin.discover())
        devices = {device.id: device for device in found}
        assert len(found) == len(devices)
        for address, card in tree.cards.items():
            if address not in chaos.damaged:
                expected = (
                    {address}
                    if card.parts == 1
                    else {
                        f"{address}-{chaos.styles[address].lower()}_nps1-{part}"
                        for part in range(card.parts)
                    }
                )
                assert expected == {one for one in devices if one.startswith(address)}
        for one, device in devices.items():
            card = tree.cards[str(device.attributes["pci"])]
            assert device.health or card.address in chaos.damaged, (one, device.health)
            part = int(one.rpartition("-")[2]) if "-" in one else 0
            minor = card.minors[part]
            assert meaning(device)[1:] == (
                f"{tree.dev}/dri/card{minor - 127}",
                f"{tree.dev}/dri/renderD{minor}",
            )


def test_a_chaos_that_would_find_something_does(build: Build, make: Make) -> None:
    tree = build(links=False)
    plugin = make(tree)
    before = {device.id: meaning(device) for device in plugin.discover()}
    first = next(iter(tree.cards.values()))
    (tree.dev / f"dri/card{first.minors[0] - 127}").unlink()
    after = {device.id: meaning(device) for device in plugin.discover()}
    assert before != after
