"""Functions of network cards: who each is, where it is, and what a container gets with it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit import pci, vfio
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.health import absence
from deviceplugin.kit.sysfs import natural

CLASSES: Final = ("02", "12")
"""PCI classes of network controllers and accelerators."""
_REPRESENTOR: Final = re.compile("(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+")
"""Port names of interfaces that stand for a virtual function on the host."""
_GPUS: Final = ("03", "12")
_TYPES: Final = {"1": "ether", "32": "infiniband"}
_LINKS: Final = {"0200": "ether", "0207": "infiniband"}

_UIO: Final = ("uio_pci_generic", "igb_uio")
_RDMA_CM: Final = "infiniband/rdma_cm"
_VHOST: Final = {"net-mount": "vhost-net", "tun-mount": "net/tun"}


@dataclass(frozen=True, slots=True)
class Names:
    """The interfaces of a function, and of which type they are."""

    interfaces: tuple[str, ...] = ()
    link_type: str = ""


@dataclass(frozen=True)
class Nic:
    """A function of a card."""

    function: pci.Function
    names: Names
    root: str
    """Address of the physical function; its own if it is one."""
    root_names: Names
    """The interfaces of the physical function."""
    number: int | None
    """Of a virtual function among those of its physical function."""
    rdma: tuple[str, ...]
    """Its RDMA devices, such as mlx5_0."""
    gpus: tuple[str, ...] = ()
    """Addresses of the GPUs that are behind the same PCI switch."""

    @property
    def address(self) -> str:
        """The PCI address, which is the id of the device."""
        return self.function.address

    @property
    def folder(self) -> Path:
        """The directory in sysfs."""
        return Path(self.function.device.path)

    @property
    def driver(self) -> str:
        """The driver; empty if there is none."""
        return self.function.driver

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Names of its network interfaces, also while a pod has them."""
        return self.names.interfaces

    @property
    def link_type(self) -> str:
        """``ether``, ``infiniband``, or empty if that is not known."""
        known = self.names.link_type or self.root_names.link_type
        return known or _LINKS.get(self.function.pci_class[:4], "")

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual function."""
        return self.root != self.address


def look(tree: Tree, before: Mapping[str, Names]) -> list[Nic]:
    """Return all functions that a driver has; ``before`` is what was known of their interfaces."""
    everything = pci.functions(tree)
    functions = [one for one in everything if one.pci_class.startswith(CLASSES)]
    gpus = [one for one in everything if one.pci_class.startswith(_GPUS)]
    names = {one.address: _names(one, before) for one in functions}
    of_roots = {
        virtual.address: (one.address, number)
        for one in functions
        for number, virtual in one.numbered_functions.items()
    }
    return [
        replace(_nic(one, names, *of_roots.get(one.address, ("", None))), gpus=_near(one, gpus))
        for one in functions
        if one.driver
    ]


def _nic(one: pci.Function, names: Mapping[str, Names], owner: str, number: int | None) -> Nic:
    rdma = sorted(one.device.tree.entries(f"{one.device.path}/infiniband"), key=natural)
    physical = one.physical_function  # while it goes, only one of the two may say so
    root = physical.address if physical else owner or one.address
    above = names.get(root, Names())
    return Nic(one, names[one.address], root, above, number, tuple(rdma))


def _near(one: pci.Function, gpus: Iterable[pci.Function]) -> tuple[str, ...]:
    """Return those of the GPUs that share the nearest PCI bridge with a function."""
    bridges = [above.path for above in one.device.line[1:] if above.subsystem == "pci"]
    for bridge in bridges:
        found = [gpu.address for gpu in gpus if gpu.device.path.startswith(f"{bridge}/")]
        if found:
            return tuple(found)
    return ()


def _names(one: pci.Function, before: Mapping[str, Names]) -> Names:
    """Return the interfaces. Their directory is empty while a pod has them."""
    tree, path = one.device.tree, f"{one.device.path}/net"
    found = {
        name: tree.device(f"{path}/{name}")
        for name in sorted(tree.entries(path), key=natural)
        if not _REPRESENTOR.fullmatch(tree.text(f"{path}/{name}/phys_port_name").strip())
    }
    if not found and os.path.isdir(path):  # noqa: PTH112 - never raises
        return before.get(one.address, Names())
    types = [_TYPES.get(device.attribute("type"), "") for device in found.values()]
    return Names(tuple(found), types[0] if types else "")


def nodes(nic: Nic, *subsystems: str) -> list[str]:
    """Return the names below /dev of the nodes of a function, whether they exist or not."""
    tree, dev = nic.function.device.tree, f"{nic.function.device.tree.dev}/"
    paths = [
        f"{nic.folder}/{subsystem}/{name}"
        for subsystem in subsystems
        for name in sorted(tree.entries(f"{nic.folder}/{subsystem}"), key=natural)
    ]
    # What a link leads to belongs to another function.
    found = [tree.node(path).removeprefix(dev) for path in paths if tree.resolve(path) == path]
    return [name for name in found if name]


@dataclass
class Access:
    """What a container gets with a function."""

    dev: Path
    nodes: list[dp.DeviceNode] = field(default_factory=list)
    info: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What it is told, in the words of the SR-IOV network device plugin."""
    missing: list[str] = field(default_factory=list)
    """Why it cannot use the function."""
    unit: vfio.Unit | None = None
    """What VFIO gives away with the function, if it has it."""

    @property
    def group(self) -> str:
        """The IOMMU group, which has one holder; empty if VFIO does not have the function."""
        return self.unit.group if self.unit else ""

    def give(self, name: str, inside: str = "", *, needed: bool = True) -> str:
        """Give the node ``name`` below /dev if it exists; return its path in the container."""
        host, path = self.dev / name, f"/dev/{inside or name}"
        if why := absence(host):
            self.missing += [why] if needed else []
            return ""
        self.nodes.append(dp.DeviceNode(str(host), path))
        return path


def access(
    nic: Nic, dev: Path, *, rdma: bool, vhost: bool, extra: Mapping[str, Mapping[str, str]]
) -> Access:
    """Return what a container gets; ``extra`` is what it is told, by address, or ``*`` for all."""
    found = Access(dev, info={"generic": {"deviceID": nic.address}})
    if vfio.has(nic.function.device):
        _vfio(nic, found)
    if nic.driver in _UIO:
        _uio(nic, found)
    if rdma:
        _rdma(nic, found)
    if vhost:
        found.info["vhost"] = {key: found.give(name) for key, name in _VHOST.items()}
    if extra:
        found.info["extra"] = {**extra.get("*", {}), **extra.get(nic.address, {})}
    return found


def _vfio(nic: Nic, found: Access) -> None:
    """Give what VFIO has for the function. The node of an unsafe group has another name inside."""
    unit = found.unit = vfio.Unit(nic.function.device)
    names = [Path(node).relative_to(found.dev).as_posix() for node in (*unit.nodes, *unit.also)]
    given = [found.give(name, name.replace("noiommu-", ""), needed=False) for name in names]
    given = given[: len(unit.nodes)]
    if given:
        found.info["vfio"] = {"mount": given[0], "dev-mount": ",".join(given[1:])}
    found.missing += unit.problems


def _uio(nic: Nic, found: Access) -> None:
    names = nodes(nic, "uio")
    if not names:
        found.missing.append("its driver has made no node yet")
    for name in names[:1]:
        found.info["uio"] = {"mount": found.give(name)}


def _rdma(nic: Nic, found: Access) -> None:
    info: dict[str, str] = {}
    verbs = nodes(nic, "infiniband_verbs")
    if not verbs:
        found.missing.append(f"{', '.join(nic.rdma)} has no verbs: load ib_uverbs")
    for name in verbs:
        info["uverbs"] = found.give(name)
    info |= {name: path for name, path in _others(nic, found) if path}
    info["rdma_dev"] = nic.rdma[0]
    found.info["rdma"] = info


def _others(nic: Nic, found: Access) -> Iterator[tuple[str, str]]:
    """Give the nodes that not every program needs, and that not every card has."""
    for name in nodes(nic, "infiniband_mad"):
        yield Path(name).name.rstrip("0123456789"), found.give(name, needed=False)
    yield "rdma_cm", found.give(_RDMA_CM, needed=False)
