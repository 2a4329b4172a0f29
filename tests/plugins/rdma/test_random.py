"""Many changes of a node: no device pays for another one, and no id moves."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rdma.machines import CONNECTX6, SAMPLE, Machine, Port
from rdma.tree import Build, RdmaTree

CONFIGURATION = {
    "resourceList": [
        {"resourceName": "vf", "selectors": {"isVirtual": True, "isRdma": True}},
        {"resourceName": "dpdk", "selectors": {"drivers": ["vfio-pci"]}},
        {"resourceName": "hca", "shares": 2, "selectors": {"isVirtual": False}},
        {"resourceName": "pf", "selectors": {"isVirtual": False}},
    ]
}
REGISTERS = ("vendor", "device", "class", "numa_node", "sriov_numvfs", "uevent")


class Chaos:
    """Changes a tree at random, and knows what is the matter with each function."""

    def __init__(self, tree: RdmaTree, chance: random.Random) -> None:
        self.tree = tree
        self.chance = chance
        self.roots = {
            one.address: port for port in tree.machine.ports for one in (port, *port.virtual)
        }
        self.damaged: set[str] = set()
        """Functions of which something cannot be read now."""
        self.down: set[str] = set()
        """Cards without a cable."""
        self._names = 0

    def change(self) -> None:
        deeds: list[Callable[[Port], None]] = [
            self.plug,
            self.virtual,
            self.cable,
            self.rename,
            self.pod,
            self.hide,
            self.hide,
            self.heal,
        ]
        self.chance.choice(deeds)(self.chance.choice(self.tree.machine.ports))

    def plug(self, port: Port) -> None:
        """Take a card away with its virtual functions, or have it back."""
        self.heal()
        self.down.discard(port.address)
        if port.address in self.tree.folders:
            self.tree.unplug(port)
        else:
            self.tree.plug_in(port)

    def virtual(self, port: Port) -> None:
        """Create a virtual function, or take it away."""
        if port.virtual and port.address in self.tree.folders:
            self.heal()
            number = self.chance.randrange(len(port.virtual))
            if port.virtual[number].address in self.tree.folders:
                self.tree.destroy(port, number)
            else:
                self.tree.create(port, number)

    def cable(self, port: Port) -> None:
        if port.address in self.tree.folders:
            is_in = port.address in self.down
            self.tree.cable(port.address, is_in=is_in)
            (self.down.discard if is_in else self.down.add)(port.address)

    def rename(self, port: Port) -> None:
        self._names += 1
        one = self.any_of(port)
        if one and self.tree.names(one.address):
            self.tree.rename(one.address, f"net{self._names}")
            if one.address in self.down:
                self.tree.cable(one.address, is_in=False)

    def pod(self, port: Port) -> None:
        """Give the interface of a virtual function to a pod, or take it back."""
        one = self.any_of(port)
        if one and one is not port and one.interface:
            self._names += 1
            if self.tree.names(one.address):
                self.tree.move_to_pod(one.address)
            else:
                self.tree.interface(one.address, f"net{self._names}")

    def any_of(self, port: Port) -> Port | None:
        there = [one for one in (port, *port.virtual) if one.address in self.tree.folders]
        return self.chance.choice(there) if there else None

    def hide(self, port: Port) -> None:
        """Have the kernel not give a file of a function, or a directory."""
        if one := self.any_of(port):
            ports = [f"infiniband/{one.rdma}/ports/1/state", f"infiniband/{one.rdma}/ports"]
            name = self.chance.choice((*REGISTERS, *(ports if one.rdma else ())))
            error = self.chance.choice((errno.EIO, errno.ENODEV, errno.EPERM))
            self.tree.kernel.faults[self.tree.folders[one.address] / name] = error
            self.damaged.add(one.address)

    def heal(self, _port: Port | None = None) -> None:
        self.tree.kernel.faults.clear()
        self.damaged.clear()

    # What must be.

    def expected(self) -> set[str]:
        """Return the ids that must be offered, of functions of which everything can be read."""
        found = set()
        for address in self.tree.folders:
            port, root = self.tree.ports[address], self.roots[address]
            if {address, root.address} & self.damaged:
                continue
            has_default = "eno1" in self.tree.names(address)
            is_divided = any(one.address in self.tree.folders for one in port.virtual)
            if port is not root:
                found |= {address} if port.rdma or port.driver == "vfio-pci" else set()
            elif port.rdma:
                found |= {f"{address}::0", f"{address}::1"}
            elif not is_divided and not has_default:
                found.add(address)
        return found

    def is_down(self, address: str) -> bool:
        root = self.roots[address]
        return root.address in self.down and bool(root.rdma or self.tree.names(root.address))


@pytest.mark.parametrize(
    ("changes", "machine"), [(50, SAMPLE), pytest.param(300, CONNECTX6, marks=pytest.mark.slow)]
)
def test_no_change_costs_another_device_or_moves_an_id(
    build: Build, changes: int, machine: Machine
) -> None:
    tree = build(machine)
    plugin = tree.plugin(CONFIGURATION)
    chaos = Chaos(tree, random.Random(changes))
    for _ in range(changes):
        chaos.change()
        found = list(plugin.discover())
        devices = {device.id: device for device in found}
        assert len(found) == len(devices)
        assert set() == chaos.expected() - set(devices)
        for one, device in devices.items():
            address = one.partition("::")[0]
            assert address in tree.folders
            folder = tree.folders[address]
            own = {path.name for path in folder.glob("infiniband_*/*")} | {"rdma_cm", "vfio"}
            own.add((folder / "iommu_group").resolve().name)
            assert {Path(node.host_path).name for node in device.nodes} <= own, one
            root = chaos.roots[address].address
            if not {address, root} & chaos.damaged:
                assert one in chaos.expected()
                assert bool(device.health) != chaos.is_down(address), (one, device.health)
