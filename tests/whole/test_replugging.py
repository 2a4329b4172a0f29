"""Sticks and cards that are plugged in again, and that renumber themselves, in any order.

The seeds are fixed. ``REPLUG_SEEDS=1000:9000`` plays others.
"""

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices, Domains
from hardware.tree import Hardware
from one_piece.history import History, Holder, numbers_of
from rdma.machines import SAMPLE
from rdma.tree import RdmaTree

FIRST, _, LAST = os.environ.get("REPLUG_SEEDS", "0:1000").partition(":")
PARTS = 5
STEPS = 12
ENTRIES = [
    "{name: tty, groups: [{count: 2, select: {subsystem: tty, product: '7523'}}]}",
    "{name: usb, id: port, groups: [{perMatch: true, usb: [{vendor: 1a86, product: '7522'}]}]}",
    "{name: both, groups: [{usb: [{vendor: 1a86, product: '7524'}], nodes: [usb, tty]}]}",
]
STICKS = {"S1": "7523", "S2": "7523", "-a": "7523", "-b": "7522", "-c": "7522", "S3": "7524"}
"""Sticks and their product numbers; those with a dash have no serial number."""
PORTS = ("1-1", "1-2", "1-3.1", "1-4")
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="making device nodes needs root")


class Sticks:
    """Sticks in four ports, two of which are equal and have no serial number."""

    def __init__(self, root: Path, random: Random) -> None:
        self.random = random
        self._hardware = Hardware(root, real=True)
        self._roots = Roots(self._hardware.dev, self._hardware.sys, self._hardware.udev)
        self._plugged: dict[str, tuple[str, str]] = {}
        """By port, the stick and its path in sysfs."""
        self._number = 0
        self._plugin: dp.Plugin | None = None

    def __call__(self) -> dp.Plugin:
        for _ in range(self.random.randrange(4)):
            self._replug(self.random.choice(PORTS))
        if self._plugin is None or self.random.random() < 0.1:
            settings = GenericSettings(device=Devices.parse(ENTRIES), domain=Domains(("x.io",)))
            self._plugin = GenericPlugin(settings, self._roots)
        return self._plugin

    def _replug(self, port: str) -> None:
        """Take out what is in a port; perhaps it comes back at once, or another one does."""
        stick, usb = self._plugged.pop(port, ("", ""))
        if usb:
            self._hardware.unplug(usb)
        others = {one for one, _ in self._plugged.values()}
        free = sorted(STICKS.keys() - others)
        if self.random.random() < 0.3:  # it stays away
            return
        stick = self.random.choice([stick or free[0], *free])
        taken = {int(path.name) for path in self._hardware.dev.glob("bus/usb/001/*")}
        self._number = next(n for n in range(self._number + 1, 99) if n % 9 + 1 not in taken) % 9
        serial = "" if stick.startswith("-") else stick
        usb = self._hardware.usb(port, f"1a86:{STICKS[stick]}", self._number + 1, serial=serial)
        ttys = {int(path.name[6:]) for path in self._hardware.dev.glob("ttyUSB*")}
        tty = min({*range(8)} - ttys)  # as the kernel has it: the first that is free
        self._hardware.behind_usb(usb, "1.0", "tty", f"ttyUSB{tty}", driver="ch341")
        self._plugged[port] = stick, usb

    def meaning(self, device: dp.Device) -> object:
        """Return what a device is: a serial number, or what is in a port."""
        port = str(device.attributes["port"])
        stick, _ = self._plugged[port]
        return port if stick.startswith("-") else stick


class Cards:
    """Cards that come and go with their virtual functions, under other numbers each time."""

    def __init__(self, root: Path, random: Random) -> None:
        self.random = random
        self._tree = RdmaTree(root, SAMPLE, real=True)
        entries = [
            {
                "resourceName": name,
                "resourcePrefix": "x.io",
                "selectors": {"isVirtual": name == "vf", "isRdma": True},
            }
            for name in ("pf", "vf")
        ]
        self._plugin = self._tree.plugin({"resourceList": entries})

    def __call__(self) -> dp.Plugin:
        for _ in range(self.random.randrange(3)):
            port = self.random.choice(SAMPLE.ports)
            is_there = port.address in self._tree.folders
            if is_there:
                self._tree.unplug(port)
            if not is_there or self.random.random() < 0.6:
                self._tree.plug_in(port)
        return self._plugin

    def meaning(self, device: dp.Device) -> object:
        return device.attributes["pci"]


class Replugging(History):
    """A history in which each id must keep its meaning, and each holder must be told the truth."""

    restarts_anytime = True

    def __init__(self, machine: Sticks | Cards, seed: int) -> None:
        self._machine = machine
        self._meaning: dict[Key, object] = {}
        self.stale: Counter[bool] = Counter()
        super().__init__(machine, seed)

    @override
    def play(self, steps: int) -> None:
        for _ in range(steps):
            super().play(1)
            self._poll()
            self._look()

    def _look(self) -> None:
        story = "\n".join(self.told)
        for name, devices in self._groups.items():
            for one in devices.values():
                meaning = self._machine.meaning(one)
                key = name, one.id.partition("::")[0]
                assert meaning == self._meaning.setdefault(key, meaning), story
        found = self.world.ownership.stale().keys()
        assert found <= {holder.key for holder in self.holders}, story
        for holder in self.holders:
            is_told = holder.key in found
            # After a restart, a node whose path is there and that no entry offers may be the same.
            restarted = "restart" in self.told and any(map(os.path.exists, holder.paths))
            assert is_told == self._is_stale(holder) or (restarted and not is_told), story
            self.stale.update([is_told])

    def _is_stale(self, holder: Holder) -> bool:
        """Return whether a holder has a node that is gone, and its device has another."""
        device = self._groups.get(holder.key[0], {}).get(holder.key[1])
        now = numbers_of(node.host_path for node in device.nodes) if device else frozenset()
        return bool(holder.numbers - now and now - holder.numbers)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", [Sticks, Cards])
def test_no_id_means_another_device_nothing_is_given_twice_and_every_old_node_is_reported(
    tmp_path: Path, kind: type[Sticks] | type[Cards], part: int
) -> None:
    machine = kind(tmp_path, Random(part))
    refused, stale = 0, Counter[bool]()
    for seed in range(int(FIRST) + part, int(LAST), PARTS):
        machine.random = Random(seed)
        history = Replugging(machine, seed)
        try:
            history.play(STEPS)
            history.come_to_rest()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        refused += history.refused
        stale += history.stale
    assert min(stale[True], stale[False]), "the histories test nothing"
    assert refused or kind is Cards, "nobody was refused: the histories test nothing"
