"""Many changes of a node: no device pays for another one, and no id moves."""

import errno
import random
from collections.abc import Callable

import pytest

from intelgpu.machines import SMALL
from intelgpu.tree import Build, IntelTree

REGISTERS = ("gpu_health", "survivability_mode", "sriov_numvfs", "numa_node", "class", "vendor")


class Chaos:
    """Changes a tree at random, and knows what is the matter with each card."""

    def __init__(self, tree: IntelTree, chance: random.Random) -> None:
        self.tree = tree
        self.chance = chance
        self.damaged: set[str] = set()
        """Cards of which something cannot be read or is nonsense now."""
        self.addresses = [card.address for card in SMALL.cards]

    def change(self) -> None:
        """Do something to a card, or to all."""
        deeds: list[Callable[[str], None]] = [
            *(self.plug, self.divide, self.hide, self.garble, self.lose, self.rebind),
        ]
        if not self.chance.randrange(8):
            self.heal()
            self.tree.renumber(self.chance)
        elif (address := self.chance.choice(self.addresses)) in self.tree.cards:
            self.chance.choice(deeds)(address)
        else:
            self.heal()
            self.tree.plug_in(address)

    def plug(self, address: str) -> None:
        """Take a card away."""
        self.heal()
        self.tree.vanish(address)

    def divide(self, address: str) -> None:
        if self.tree.known[address].most:
            self.heal()
            self.tree.divide(address, self.chance.randrange(4))

    def hide(self, address: str) -> None:
        path = self.tree.folder(address) / self.chance.choice(REGISTERS)
        path.touch()
        self.tree.kernel.faults[path] = self.chance.choice((errno.EIO, errno.ENODEV, errno.EPERM))
        self.damaged.add(address)

    def garble(self, address: str) -> None:
        path = self.tree.folder(address) / self.chance.choice(REGISTERS[:4])
        path.write_text(self.chance.choice(("", "x\n", "-9\n", "\0" * 9, "9" * 99)))
        self.damaged.add(address)

    def lose(self, address: str) -> None:
        """Have a device node vanish under its driver, and its link."""
        if address in self.tree.numbers:
            (self.tree.dev / self.chance.choice(self.tree.names(address))).unlink(missing_ok=True)
            self.damaged.add(address)

    def rebind(self, address: str) -> None:
        """Have the driver bound anew."""
        if address in self.tree.numbers:
            self.tree.bind_anew(address)

    def heal(self) -> None:
        """Have everything be as the kernel would have it."""
        self.tree.kernel.faults.clear()
        for address in self.damaged & {*self.tree.cards}:
            card, folder = self.tree.cards[address], self.tree.folder(address)
            for name in REGISTERS[:3]:
                (folder / name).unlink(missing_ok=True)
            (folder / "numa_node").write_text(f"{card.numa}\n")
            if card.most:
                count = len(self.tree.functions(address))
                (folder / "sriov_numvfs").write_text(f"{count}\n")
            for name in self.tree.names(address) if address in self.tree.numbers else ():
                self.tree.hardware.node(name)
        self.damaged.clear()

    def card(self, address: str) -> str:
        """Return the card that a function is of."""
        return f"{address.rpartition('.')[0]}.0"

    def expected(self) -> set[str]:
        """Return the ids of what is whole: cards without functions, and functions."""
        whole = {one for one in self.tree.cards if self.card(one) not in self.damaged}
        return {one for one in whole if not self.tree.functions(one) or one != self.card(one)}


@pytest.mark.parametrize("ids", ["address", "card"])
@pytest.mark.parametrize(
    ("seed", "changes"), [(0, 50), pytest.param(1, 500, marks=pytest.mark.slow)]
)
def test_no_change_costs_another_device_or_moves_an_id(
    build: Build, seed: int, changes: int, ids: str
) -> None:
    tree = build()
    plugin = tree.plugin(state_file=None, device_ids=ids)
    chaos = Chaos(tree, random.Random(seed))
    owners: dict[str, str] = {}
    for _ in range(changes):
        chaos.change()
        found = list(plugin.discover())
        devices = {device.id: device for device in found}
        assert len(found) == len(devices)
        addresses = {device.attributes["pci"] for device in found}
        if ids == "address":
            assert chaos.expected() <= addresses
            assert addresses == {*devices}
        assert addresses <= {*tree.cards}
        for one, device in devices.items():
            address = str(device.attributes["pci"])
            assert address == owners.setdefault(one, address)
            assert device.health or chaos.card(address) in chaos.damaged, (one, device.health)
            own = {f"{tree.dev}/{name}" for name in tree.names(address)}
            given = {node.host_path for node in device.nodes}
            assert own == given or (own > given and chaos.card(address) in chaos.damaged)
            functions = tree.functions(chaos.card(address))
            assert address in functions or not functions  # never a card beside its functions
