"""Builds /sys, /dev and /proc/net of a node with network cards.

::

    bus/pci/devices/0000:3b:00.0 -> devices/pci0000:3b/0000:3b:00.0
      vendor device class numa_node driver sriov_numvfs virtfn0 -> ../0000:3b:00.2
      net/ens1f0np0/{type,carrier,flags}
      infiniband/mlx5_0/ports/1/{state,link_layer}
      infiniband_verbs/uverbs0 infiniband_mad/{umad0,issm0}
    devices/pci0000:3b/0000:3b:00.2/{physfn,iommu_group}
    /dev/infiniband/{rdma_cm,uverbs0,umad0,issm0} /dev/vfio/{vfio,42} /proc/net/{route,ipv6_route}
"""

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_rdma import RdmaPlugin, RdmaSettings
from deviceplugin_testing.fixture import FailingKernel
from discovered import found
from hardware.tree import Hardware, target_of
from rdma.machines import Machine, Port

_TYPES: Final = {"ether": 1, "infiniband": 32}
_CLASSES: Final = {"ether": "020000", "infiniband": "020700"}
_LAYERS: Final = {"ether": "Ethernet", "infiniband": "InfiniBand"}
_STATES: Final = {True: "4: ACTIVE", False: "1: DOWN"}
_UP: Final = 0x1003


class RdmaTree:
    """A node's network cards below ``root``. Device nodes are links to /dev/null."""

    def __init__(self, root: Path, machine: Machine, *, real: bool = False) -> None:
        self.root = root
        self.hardware = Hardware(root, real=real)
        self.sys, self.dev, self.net = self.hardware.sys, self.hardware.dev, root / "proc/net"
        self.machine = machine
        self.kernel = FailingKernel()
        self.sysfs = Sysfs(self.sys, self.kernel)
        self.folders: dict[str, Path] = {}
        """Directories of the functions that are there."""
        self.ports = {one.address: one for port in machine.ports for one in (port, *port.virtual)}
        self._verbs = count()
        for name in ("infiniband/rdma_cm", "vfio/vfio"):
            self.hardware.device(f"virtual/misc/{Path(name).name}", "misc", node=name)
        self.route(machine.default_route)
        for port in machine.ports:
            self.plug_in(port)
        for address, above, numa in machine.gpus:
            self._bridges(above)
            path = f"pci{above[:7]}/{above}/{address}"
            self._function(path, "10de:2330", "030200", "nvidia", numa)

    def plugin(
        self,
        configuration: object = None,
        clock: Callable[[], float] = monotonic,
        **settings: Any,
    ) -> RdmaPlugin:
        """Return a plugin with what a configuration file has; to it, a link is down at once."""
        file = self.root / "config.json"
        file.write_text(json.dumps(configuration or {}))
        given = {
            "state_file": self.root / "names.json",
            "devinfo_dir": self.root / "devinfo",
            "link_patience": timedelta(),
            "resources": RdmaSettings.of_file(file).resources,
            **settings,
        }
        made = RdmaSettings(sysfs_dir=self.sys, dev_dir=self.dev, proc_net_dir=self.net, **given)
        return RdmaPlugin(made, self.sysfs, clock)

    # What the machine has.

    def plug_in(self, port: Port) -> None:
        """Have a card, with the virtual functions that it had at the start."""
        folder = self.add(port)
        (folder / "sriov_totalvfs").write_text("16\n")
        (folder / "sriov_numvfs").write_text("0\n")
        for number in range(len(port.virtual)):
            self.create(port, number)

    def create(self, port: Port, number: int) -> None:
        """Create a virtual function of a card, as writing to sriov_numvfs does."""
        virtual = port.virtual[number]
        folder = self.add(virtual, above=port.above)
        (folder / "physfn").symlink_to(f"../{port.address}")
        (self.folders[port.address] / f"virtfn{number}").symlink_to(f"../{virtual.address}")
        self._count(port)

    def destroy(self, port: Port, number: int) -> None:
        """Take a virtual function away."""
        self.remove(port.virtual[number].address)
        (self.folders[port.address] / f"virtfn{number}").unlink()
        self._count(port)

    def _count(self, port: Port) -> None:
        there = [one for one in port.virtual if one.address in self.folders]
        (self.folders[port.address] / "sriov_numvfs").write_text(f"{len(there)}\n")

    def add(self, port: Port, above: str = "") -> Path:
        """Have a function, by its driver."""
        above = port.above or above
        self._bridges(above)
        root = f"pci{(above or port.address)[:7]}"
        path = "/".join(filter(None, (root, above, port.address)))
        folder = self._function(path, port.numbers, _CLASSES[port.link], port.driver, port.numa)
        self.folders[port.address] = folder
        if port.group:
            self._group(port, folder)
        if port.interface:
            self.interface(port.address, port.interface, port.link)
        if port.rdma:
            self.rdma(folder, port.rdma, mad=port.mad, link=port.link)
        return folder

    def below(self, folder: Path) -> Path:
        """Return where a device is among the devices of sysfs."""
        return folder.relative_to(self.sys / "devices")

    def _function(self, path: str, numbers: str, kind: str, driver: str, numa: int) -> Path:
        vendor, product = numbers.split(":")
        values = {
            "vendor": f"0x{vendor}",
            "device": f"0x{product}",
            "class": f"0x{kind}",
            "numa_node": str(numa),
            "revision": "0x00",
            "subsystem_vendor": f"0x{vendor}",
            "subsystem_device": "0x0001",
            "modalias": f"pci:v0000{vendor.upper()}d0000{product.upper()}sv0000{vendor.upper()}"
            f"sd00000001bc{kind[:2]}sc{kind[2:4]}i{kind[4:]}",
        }
        return self.hardware.device(path, "pci", driver=driver, attributes=values, is_bus=True)

    def _bridges(self, above: str) -> None:
        path = f"pci{above[:7]}"
        for name in filter(None, above.split("/")):
            path = f"{path}/{name}"
            if not (self.sys / "devices" / path / "vendor").exists():
                self._function(path, "1000:c030", "060400", "pcieport", -1)

    def _group(self, port: Port, folder: Path) -> None:
        group = self.sys / "kernel/iommu_groups" / port.group
        (group / "devices").mkdir(parents=True, exist_ok=True)
        link = group / "devices" / port.address
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        (folder / "iommu_group").symlink_to(group)
        if port.driver == "vfio-pci":
            self.hardware.vfio(port.group)

    def rdma(self, folder: Path, rdma: str, *, mad: bool = True, link: str = "ether") -> None:
        """Have an RDMA device of a function."""
        number, path = next(self._verbs), self.below(folder)
        device = self.hardware.device(f"{path}/infiniband/{rdma}", "infiniband")
        (device / "device").symlink_to("../..")
        place = device / "ports/1"
        place.mkdir(parents=True)
        (place / "state").write_text(f"{_STATES[True]}\n")
        (place / "link_layer").write_text(f"{_LAYERS[link]}\n")
        names = {"infiniband_verbs": [f"uverbs{number}"]}
        if mad:
            names["infiniband_mad"] = [f"issm{number}", f"umad{number}"]
        for subsystem, nodes in names.items():
            for name in nodes:
                self.hardware.device(
                    f"{path}/{subsystem}/{name}",
                    subsystem,
                    node=f"infiniband/{name}",
                    attributes={"ibdev": rdma},
                )

    def interface(self, address: str, name: str, link: str = "ether", port_name: str = "") -> Path:
        """Have an interface of a function, that somebody has switched on and that has a cable."""
        path = self.below(self.folders[address])
        values = {"type": str(_TYPES[link]), "carrier": "1", "flags": hex(_UP)}
        if port_name:
            values["phys_port_name"] = port_name
        folder = self.hardware.device(f"{path}/net/{name}", "net", attributes=values)
        (folder / "device").symlink_to("../..")
        return folder

    # What happens to it.

    def remove(self, address: str) -> None:
        """Take a function away."""
        folder = self.folders.pop(address)
        for node in folder.glob("infiniband_*/*"):
            self.hardware.remove_node(f"infiniband/{node.name}")
        for node in folder.rglob("vhost-vdpa-*"):
            self.hardware.remove_node(node.name)
        self._unlink(folder)
        shutil.rmtree(folder)
        self.hardware.event()

    def _unlink(self, folder: Path) -> None:
        """Remove the links of classes and buses to what is below a directory."""
        for link in [*self.sys.glob("class/*/*"), *self.sys.glob("bus/*/devices/*")]:
            target = target_of(link)
            if folder in (target, *target.parents):
                link.unlink()

    def unplug(self, port: Port) -> None:
        """Take a card away, with its virtual functions."""
        for number, virtual in enumerate(port.virtual):
            if virtual.address in self.folders:
                self.destroy(port, number)
        self.remove(port.address)

    def names(self, address: str) -> list[str]:
        """Return the interfaces of a function that are on the host."""
        return sorted(path.name for path in (self.folders[address] / "net").glob("*"))

    def rename(self, address: str, name: str) -> None:
        """Give the interface of a function another name."""
        link = self.ports[address].link
        for old in self.names(address):
            self._take(address, f"net/{old}")
        self.interface(address, name, link)

    def move_to_pod(self, address: str) -> None:
        """Move the interfaces of a function into a pod: their directory is empty then."""
        for name in self.names(address):
            self._take(address, f"net/{name}")

    def move_rdma_to_pod(self, address: str) -> None:
        """Do so with the RDMA devices, which `rdma system set netns exclusive` permits."""
        for one in (self.folders[address] / "infiniband").iterdir():
            self._take(address, f"infiniband/{one.name}")

    def _take(self, address: str, name: str) -> None:
        (self.sys / "class" / name).unlink()
        shutil.rmtree(self.folders[address] / name)
        self.hardware.event()

    def cable(self, address: str, *, is_in: bool) -> None:
        """Plug the cable of a function in, or pull it."""
        port = self.ports[address]
        for name in self.names(address):
            (self.folders[address] / "net" / name / "carrier").write_text(f"{int(is_in)}\n")
        if port.rdma:
            self.state(address, _STATES[is_in])

    def state(self, address: str, text: str) -> None:
        """Have the port of a function be in a state."""
        port = self.ports[address]
        place = self.folders[address] / f"infiniband/{port.rdma}/ports/1/state"
        place.write_text(f"{text}\n")

    def bind(self, address: str, driver: str) -> None:
        """Have another driver, or none."""
        link = self.folders[address] / "driver"
        link.unlink(missing_ok=True)
        if driver:
            (self.sys / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.sys / "drivers" / driver)
        self.hardware.event()

    def route(self, interface: str) -> None:
        """Have a default route by an interface; none where empty."""
        self.net.mkdir(parents=True, exist_ok=True)
        head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        local = "\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        default = "\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        lines = [f"{interface}{default}", f"{interface}{local}"] if interface else []
        (self.net / "route").write_text(head + "".join(lines))


Build = Callable[..., RdmaTree]
"""Makes the tree of a machine."""


def ids(plugin: RdmaPlugin) -> dict[str, list[str]]:
    """Look; return the ids of each resource."""
    made: dict[str, list[str]] = {}
    for one, device in found(plugin).items():
        made.setdefault(str(device.resource), []).append(one)
    return made


def nodes(allocation: dp.Allocation) -> list[str]:
    """Return the device nodes of a container, without /dev/."""
    return [node.container_path.removeprefix("/dev/") for node in allocation.nodes]
