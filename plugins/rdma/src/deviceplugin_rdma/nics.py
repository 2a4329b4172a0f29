"""Functions of network cards: who each is, and where it is.

A sub-function, on the auxiliary bus, is one as well. Its id is the address of its PCI function with
its own number, ``sfnum``: the kernel's number of it is another one after a reboot.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from deviceplugin.kit import pci, vdpa
from deviceplugin.kit.hardware import Device, Tree
from deviceplugin.kit.sysfs import natural

CLASSES: Final = ("02", "12")
"""PCI classes of network controllers and accelerators."""
_REPRESENTOR: Final = re.compile("(c[0-9]+)?pf[0-9]+((vf|sf)[0-9]+)?")
"""Port names of interfaces that stand for another function, on the host or on the card's CPU."""
_SUB_FUNCTION: Final = re.compile("[a-z0-9_]+[.]sf[.][0-9]+")
_GPUS: Final = ("03", "12")
_TYPES: Final = {"1": "ether", "32": "infiniband"}
_LINKS: Final = {"0200": "ether", "0207": "infiniband"}


@dataclass(frozen=True, slots=True)
class Names:
    """What a function has in its network namespace, also while that is the one of a pod."""

    interfaces: tuple[str, ...] = ()
    link_type: str = ""
    rdma: tuple[str, ...] = ()


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
    """Of a virtual function or a sub-function among those of its physical function."""
    gpus: tuple[str, ...] = ()
    """Addresses of the GPUs that are behind the same PCI switch."""
    sub: Device | None = None
    """The sub-function of ``function`` that it is, if it is one."""
    vdpas: tuple[Device, ...] = ()
    """The vDPA devices that are made of it."""
    virtio: tuple[str, ...] | None = None
    """Interfaces that virtio_vdpa has made of these; None if it has made none, not even for pods.

    Their parent is the PCI function. So sub-functions of one function cannot be told apart by them.
    """
    has_subs: bool = False
    """Whether there are sub-functions of it."""

    @property
    def device(self) -> Device:
        """The device in sysfs."""
        return self.sub or self.function.device

    @property
    def address(self) -> str:
        """The PCI address, of a sub-function with its number: it is never another function's."""
        return self.function.address + (f"-{self.sub.lasting_name}" if self.sub else "")

    @property
    def name(self) -> str:
        """What programs call it until the next reboot, such as ``mlx5_core.sf.4``."""
        return self.device.name

    @property
    def folder(self) -> Path:
        """The directory in sysfs."""
        return Path(self.device.path)

    @property
    def driver(self) -> str:
        """The driver, of a sub-function that of its PCI function; empty if there is none."""
        return self.function.driver

    @property
    def is_divided(self) -> bool:
        """Whether other functions depend on it, so that no pod may have it for itself."""
        one = self.function
        return not self.sub and (self.has_subs or one.is_divided or bool(one.numbered_functions))

    def vdpa(self, kind: str) -> Device | None:
        """Return the first of its vDPA devices that are bound to a driver of this kind."""
        return next((one for one in self.vdpas if vdpa.kind(one) == kind), None)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Names of its network interfaces, also while a pod has them."""
        return self.names.interfaces

    @property
    def rdma(self) -> tuple[str, ...]:
        """Its RDMA devices, such as mlx5_0, also while a pod has them."""
        return self.names.rdma

    @property
    def link_type(self) -> str:
        """``ether``, ``infiniband``, or empty if that is not known."""
        known = self.names.link_type or self.root_names.link_type
        return known or _LINKS.get(self.function.pci_class[:4], "")

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual function or a sub-function."""
        return self.root != self.address


def look(tree: Tree, before: Mapping[str, Names]) -> list[Nic]:
    """Return all functions that a driver has; ``before`` is what was known of their interfaces."""
    everything = pci.functions(tree)
    functions = [one for one in everything if one.pci_class.startswith(CLASSES)]
    gpus = [one for one in everything if one.pci_class.startswith(_GPUS)]
    names = {one.address: _names(one.device, one.address, before) for one in functions}
    of_roots = {
        virtual.address: (one.address, number)
        for one in functions
        for number, virtual in one.numbered_functions.items()
    }
    found = [
        replace(_nic(one, names, *of_roots.get(one.address, ("", None))), gpus=_near(one, gpus))
        for one in functions
        if one.driver
    ]
    return _with_vdpas(_with_subs(found, tree, before), tree)


def _with_subs(found: Iterable[Nic], tree: Tree, before: Mapping[str, Names]) -> list[Nic]:
    below = _by_parent(_subs(tree))
    made = []
    for nic in found:
        there = below.get(nic.device.path, ())
        own = {one.lasting_name: one for one in there if not _why_not(one)}
        made.append(replace(nic, has_subs=bool(there)))
        for _, device in sorted(own.items(), key=lambda pair: natural(pair[0])):
            sub = replace(nic, sub=device, number=int(device.attribute("sfnum")))
            made.append(replace(sub, names=_names(device, sub.address, before)))
    return made


def _with_vdpas(found: Iterable[Nic], tree: Tree) -> list[Nic]:
    below, virtio = _by_parent(tree.subsystem("vdpa")), _virtio(tree)
    made = []
    for nic in found:
        own = below.get(nic.device.path, ())
        one = replace(nic, vdpas=tuple(own))
        if one.vdpa("virtio"):
            above = {nic.function.device.path, nic.device.path, *(each.path for each in own)}
            there = above & virtio.keys()
            names = tuple(name for path in there for name in virtio[path])
            one = replace(one, virtio=names if there else None)
        made.append(one)
    return made


def _virtio(tree: Tree) -> Mapping[str, list[str]]:
    """Return the interfaces of virtio devices by what those are made of."""
    found: dict[str, list[str]] = {}
    for parent, devices in _by_parent(tree.subsystem("virtio")).items():
        folders = [f"{one.path}/net" for one in devices]
        if any(map(os.path.isdir, folders)):
            found[parent] = [name for folder in folders for name in tree.entries(folder)]
    return found


def _by_parent(devices: Iterable[Device]) -> Mapping[str, list[Device]]:
    found: dict[str, list[Device]] = defaultdict(list)
    for one in sorted(devices, key=lambda one: natural(one.name)):
        found[os.path.dirname(one.path)].append(one)  # noqa: PTH120 - there are thousands
    return found


def _subs(tree: Tree) -> Iterator[Device]:
    return (one for one in tree.subsystem("auxiliary") if _SUB_FUNCTION.fullmatch(one.name))


def _why_not(sub: Device) -> str:
    if sub.lasting_name == sub.name:
        return "has no sfnum, without which no id of it would last"
    return "" if sub.own_driver else "has no driver"


def unusable(tree: Tree) -> Iterator[str]:
    """Yield which sub-functions are not offered, and why."""
    for one in _subs(tree):
        if why := _why_not(one):
            yield f"{one.name} {why}"


def _nic(one: pci.Function, names: Mapping[str, Names], owner: str, number: int | None) -> Nic:
    physical = one.physical_function  # while it goes, only one of the two may say so
    root = physical.address if physical else owner or one.address
    above = names.get(root, Names())
    return Nic(one, names[one.address], root, above, number)


def _near(one: pci.Function, gpus: Iterable[pci.Function]) -> tuple[str, ...]:
    """Return those of the GPUs that share the nearest PCI bridge with a function."""
    bridges = [above.path for above in one.device.line[1:] if above.subsystem == "pci"]
    for bridge in bridges:
        found = [gpu.address for gpu in gpus if gpu.device.path.startswith(f"{bridge}/")]
        if found:
            return tuple(found)
    return ()


def _names(one: Device, address: str, before: Mapping[str, Names]) -> Names:
    """Return the names. The directory of a kind is empty while a pod has what was in it."""
    tree, path, rdma = one.tree, f"{one.path}/net", f"{one.path}/infiniband"
    kept = before.get(address, Names())
    verbs = tuple(sorted(tree.entries(rdma), key=natural))
    if not verbs and os.path.isdir(rdma):  # noqa: PTH112 - never raises
        verbs = kept.rdma
    found = {
        name: tree.device(f"{path}/{name}")
        for name in sorted(tree.entries(path), key=natural)
        if not _REPRESENTOR.fullmatch(tree.text(f"{path}/{name}/phys_port_name").strip())
    }
    if not found and os.path.isdir(path):  # noqa: PTH112 - never raises
        return replace(kept, rdma=verbs)
    types = [_TYPES.get(device.attribute("type"), "") for device in found.values()]
    return Names(tuple(found), types[0] if types else "", verbs)
