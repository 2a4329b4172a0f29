"""Builds /sys and /dev of a node with Intel GPUs, of what is known of a machine.

::

    bus/pci/devices/0000:03:00.0 -> devices/pci0000:00/0000:03:00.0
      vendor device class numa_node sriov_totalvfs sriov_numvfs virtfn0 -> ../0000:03:00.1
      driver -> .../i915
      drm/card1 drm/renderD128
      i915.mei-gsc.768/mei/mei0
    bus/pci/devices/0000:03:00.1 -> devices/pci0000:00/0000:03:00.1
      physfn -> ../0000:03:00.0
    /dev/dri/by-path/pci-0000:03:00.0-{card,render}
"""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_intelgpu import IntelGpuPlugin, IntelGpuSettings
from deviceplugin_testing.fixture import FailingKernel
from hardware.tree import Hardware, renew
from intelgpu.machines import Card, Machine

_RENDER: Final = 128


class IntelTree:
    """A node's GPUs below ``root``. Device nodes are links to /dev/null."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self.root = root
        self.hardware = Hardware(root)
        self.sys, self.dev = self.hardware.sys, self.hardware.dev
        self.kernel = FailingKernel()
        self.sysfs = Sysfs(self.sys, self.kernel)
        self.machine = machine
        self.known = {card.address: card for card in machine.cards}
        self.cards: dict[str, Card] = {}
        """What is on the bus, virtual functions too, by address."""
        self.numbers: dict[str, int] = {}
        """Of those that have device nodes: N of cardN and of renderD(128 + N - first)."""
        self._controllers = 0
        (self.dev / "dri/by-path").mkdir(parents=True)
        for driver in ("i915", "xe"):
            (self.sys / "module" / driver).mkdir(parents=True)
            (self.sys / "bus/pci/drivers" / driver).mkdir(parents=True)
        for card in machine.cards:
            self.plug_in(card.address)

    def plugin(self, **settings: Any) -> IntelGpuPlugin:
        """Return a plugin that waits for nothing."""
        given = {"state_file": self.root / "state.json", "error_patience": timedelta(), **settings}
        made = IntelGpuSettings(sysfs_dir=self.sys, dev_dir=self.dev, **given)
        return IntelGpuPlugin(made, self.sysfs)

    # What the machine has.

    def folder(self, address: str) -> Path:
        """Return the directory of a PCI function."""
        return self.sys / "devices" / _place(address)

    def names(self, address: str) -> list[str]:
        """Return the device nodes of a GPU, below ``/dev``."""
        number = self.numbers[address]
        return [f"dri/card{number}", f"dri/renderD{_RENDER + number - self.machine.first}"]

    def functions(self, address: str) -> list[str]:
        """Return the virtual functions of a card."""
        slot = address.rpartition(".")[0]
        return [one for one in self.cards if one.startswith(slot) and one != address]

    def plug_in(self, address: str) -> None:
        """Have a card on the bus, by its driver, with the virtual functions that it has."""
        card = self.known[address]
        self._function(card)
        if card.most:
            (self.folder(address) / "sriov_totalvfs").write_text(f"{card.most}\n")
            (self.folder(address) / "sriov_numvfs").write_text("0\n")
        self.divide(address, card.count)

    def _function(self, card: Card) -> Path:
        values = {
            "vendor": f"0x{card.vendor}",
            "device": f"0x{card.product}",
            "class": f"0x{card.kind}",
            "numa_node": str(card.numa),
            "local_cpulist": "0-127"
            if card.numa < 0
            else f"{32 * card.numa}-{32 * card.numa + 31}",
        }
        folder = self.hardware.device(_place(card.address), "pci", attributes=values, is_bus=True)
        self.cards[card.address] = card
        if card.driver:
            self.bind(card.address, card.driver)
        return folder

    # What happens to it.

    def bind(self, address: str, driver: str) -> None:
        """Bind a driver to a GPU, which makes device nodes unless it is vfio-pci."""
        folder = self.folder(address)
        bound = self.sys / "bus/pci/drivers" / driver
        bound.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(bound)
        (bound / address).symlink_to(folder)
        if driver != "vfio-pci":
            used = {*self.numbers.values()}
            first = self.machine.first
            self.number(address, min(one for one in range(first, 1000) if one not in used))
            if self.cards[address].is_discrete:
                name = f"{driver}.mei-gsc.768/mei/mei{self._controllers}"
                self.hardware.device(f"{_place(address)}/{name}", "mei", node=Path(name).name)
                self._controllers += 1

    def number(self, address: str, number: int) -> None:
        """Have a driver make the device nodes of a GPU."""
        self.numbers[address] = number
        for name, what in zip(self.names(address), ("card", "render"), strict=True):
            place = f"{_place(address)}/drm/{Path(name).name}"
            link = self.dev / f"dri/by-path/pci-{address}-{what}"
            links = (str(link.relative_to(self.dev)),)
            folder = self.hardware.device(place, "drm", node=name, links=links)
            (folder / "device").symlink_to("../..")
            link.symlink_to(f"../{Path(name).name}")

    def unbind(self, address: str) -> None:
        """Have no driver for a GPU, and no device nodes."""
        folder = self.folder(address)
        driver = folder / "driver"
        if driver.is_symlink():
            (driver.readlink() / address).unlink(missing_ok=True)
            driver.unlink()
        if address in self.numbers:
            self._unnumber(address)
        for controller in folder.glob("*.mei-gsc.*/mei/mei*"):
            self.hardware.unplug(str(controller.relative_to(self.sys / "devices")))

    def _unnumber(self, address: str) -> None:
        del self.numbers[address]
        for place in [*(self.folder(address) / "drm").iterdir()]:
            self.hardware.unplug(str(place.relative_to(self.sys / "devices")))
        (self.folder(address) / "drm").rmdir()
        for what in ("card", "render"):
            (self.dev / f"dri/by-path/pci-{address}-{what}").unlink()

    def bind_anew(self, address: str) -> None:
        """Have the driver leave a GPU and take it again: its directory drm is a new one."""
        renew(self.folder(address) / "drm")

    def divide(self, address: str, count: int) -> None:
        """Have a card have so many virtual functions."""
        folder, card = self.folder(address), self.cards[address]
        for virtual in self.functions(address):
            self._remove(virtual)
        for link in folder.glob("virtfn*"):
            link.unlink()
        for number in range(count):
            slot = address.rpartition(".")[0]
            own = replace(card, address=f"{slot}.{number + 1}", most=0, count=0, is_discrete=False)
            (folder / f"virtfn{number}").symlink_to(f"../{own.address}")
            self._function(own)
            (self.folder(own.address) / "physfn").symlink_to(f"../{address}")
        if card.most:
            (folder / "sriov_numvfs").write_text(f"{count}\n")

    def vanish(self, address: str) -> None:
        """Take a card away, and its virtual functions."""
        for virtual in self.functions(address):
            self._remove(virtual)
        self._remove(address)

    def _remove(self, address: str) -> None:
        self.unbind(address)
        del self.cards[address]
        self.hardware.unplug(_place(address))

    def renumber(self, chance: random.Random) -> None:
        """Have all drivers bound in another order: each GPU has other device nodes."""
        addresses = [*self.numbers]
        numbers = [*self.numbers.values()]
        chance.shuffle(numbers)
        for address in addresses:
            self._unnumber(address)
        for address, number in zip(addresses, numbers, strict=True):
            self.number(address, number)


def _place(address: str) -> str:
    return f"pci{address[:4]}:00/{address}"


Build = Callable[..., IntelTree]
"""Makes the tree of a machine."""


def nodes(device: dp.Device) -> list[str]:
    """Return the paths of the nodes that a container gets."""
    return [node.container_path for node in device.nodes]
