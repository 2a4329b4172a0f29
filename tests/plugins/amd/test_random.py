"""Many changes of a node: no device pays for another one, and no id moves."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from amd.machines import SMALL
from amd.tree import AmdTree, Build

STYLES = ("SPX", "DPX", "QPX")
REGISTERS = ("ras/umc_err_count", "ras/gfx_err_count", "current_compute_partition")
ERRORS = (errno.EIO, errno.ENODEV, errno.EPERM)
NONSENSE = ("", "simd_count", "simd_count 4\n", "drm_render_minor x")


class Chaos:
    """Changes a tree at random, and knows what is the matter with each GPU."""

    def __init__(self, tree: AmdTree, chance: random.Random) -> None:
        self.tree = tree
        self.chance = chance
        self.styles = dict.fromkeys(SMALL.addresses, "SPX")
        self.damaged: set[str] = set()
        """GPUs of which something cannot be read now."""

    def change(self) -> None:
        deeds: list[Callable[[str], None]] = [self.plug, self.divide, self.damage, self.heal]
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

    def damage(self, address: str) -> None:
        """Have the kernel not give a file of a GPU, or nonsense in place of its node in KFD."""
        if card := self.tree.cards.get(address):
            self.damaged.add(address)
            node = self.tree.node(address, self.chance.randrange(card.parts))
            properties = self.tree.folder(node) / "properties"
            registers = (card.folder / name for name in REGISTERS)
            text = self.chance.choice((*NONSENSE, None, None, None))
            if text is None:
                path = self.chance.choice((properties, *registers))
                self.tree.kernel.faults[path] = self.chance.choice(ERRORS)
            else:
                properties.write_text(text)

    def heal(self, _address: str = "") -> None:
        """Have everything be readable, and KFD write its topology again."""
        self.tree.kernel.faults.clear()
        self.damaged.clear()
        self.tree.topology()


@pytest.mark.parametrize(
    ("seed", "changes"), [(0, 50), pytest.param(1, 500, marks=pytest.mark.slow)]
)
def test_no_change_costs_another_device_or_moves_an_id(
    build: Build, seed: int, changes: int
) -> None:
    tree = build(links=False)
    plugin = tree.plugin(resource_naming_strategy="mixed", state_file=None)
    chaos = Chaos(tree, random.Random(seed))
    for _ in range(changes):
        chaos.change()
        found = list(plugin.discover())
        devices = {device.id: device for device in found}
        assert len(found) == len(devices)
        for address, card in tree.cards.items():
            if address not in chaos.damaged:
                style = f"{address}-{chaos.styles[address].lower()}_nps1"
                parts = {f"{style}-{part}" for part in range(card.parts)}
                expected = {address} if card.parts == 1 else parts
                assert expected == {one for one in devices if one.startswith(address)}
        for one, device in devices.items():
            card = tree.cards[str(device.attributes["pci"])]
            assert device.health or card.address in chaos.damaged, (one, device.health)
            part = int(one.rpartition("-")[2]) if "-" in one else 0
            minor = card.minors[part]
            names = [Path(node.host_path).name for node in device.nodes]
            assert ["kfd", f"card{minor - 127}", f"renderD{minor}"] == names
