"""What a container gets with a function of a network card."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit import vdpa, vfio
from deviceplugin.kit.hardware import Device
from deviceplugin.kit.health import absence
from deviceplugin.kit.sysfs import natural
from deviceplugin_rdma.nics import Nic

_UIO: Final = ("uio_pci_generic", "igb_uio")
_RDMA_CM: Final = "infiniband/rdma_cm"
_VHOST: Final = {"net-mount": "vhost-net", "tun-mount": "net/tun"}


def nodes(nic: Nic, *subsystems: str) -> list[str]:
    """Return the names below /dev of the nodes of a function, whether they exist or not."""
    tree, dev = nic.device.tree, f"{nic.device.tree.dev}/"
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
    vdpa: Device | None = None
    """The vDPA device that it gets, if it wants one."""
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


def access(nic: Nic, dev: Path, *, rdma: bool, vhost: bool, of_vdpa: str) -> Access:
    """Return what a container gets; ``of_vdpa`` is the kind of vDPA device that it wants."""
    found = Access(dev, info={"generic": {"deviceID": nic.name}})
    if vfio.has(nic.device):
        _vfio(nic, found)
    if nic.driver in _UIO:
        _uio(nic, found)
    if of_vdpa:
        _vdpa(nic, of_vdpa, found)
    elif rdma:
        _rdma(nic, found)
    elif nic.sub and not (nic.folder / "net").is_dir():
        found.missing.append(f"{nic.sub.own_driver} has made no interface of {nic.name}")
    if vhost:
        found.info["vhost"] = {key: found.give(name) for key, name in _VHOST.items()}
    return found


def _vdpa(nic: Nic, kind: str, found: Access) -> None:
    found.vdpa = device = nic.vdpa(kind)
    found.info["vdpa"] = {}
    if device and kind == "virtio" and nic.virtio is None:
        found.missing.append(f"{device.name} has no interface yet: load virtio_net")
    elif device and kind == "vhost":
        node = vdpa.node(device)
        path = node and found.give(Path(node).name)
        found.info["vdpa"] |= {"mount": path} if path else {}
        found.missing += [] if node else [f"{device.name} has no node of vhost_vdpa yet"]


def _vfio(nic: Nic, found: Access) -> None:
    """Give what VFIO has for the function. The node of an unsafe group has another name inside."""
    unit = found.unit = vfio.Unit(nic.device)
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
