"""What a container gets with a function: device nodes, and what it is told about them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit import vfio
from deviceplugin.kit.health import absence
from deviceplugin_rdma.nics import Nic, nodes

_UIO: Final = ("uio_pci_generic", "igb_uio")
_RDMA_CM: Final = "infiniband/rdma_cm"
_VHOST: Final = {"net-mount": "vhost-net", "tun-mount": "net/tun"}


@dataclass
class Access:
    """What a container gets with a function."""

    dev: Path
    nodes: list[dp.DeviceNode] = field(default_factory=list)
    info: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What it is told, in the words of the SR-IOV network device plugin."""
    missing: list[str] = field(default_factory=list)
    """Why it cannot use the function."""

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
    """Return what a container gets with a function.

    Args:
        nic: The function.
        dev: The directory of device nodes.
        rdma: Whether with its RDMA nodes.
        vhost: Whether with the nodes of vhost.
        extra: What it is told besides, by address; ``*`` is for all.
    """
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
    unit = vfio.Unit(nic.function.device)
    names = [Path(node).relative_to(found.dev).as_posix() for node in unit.nodes]
    given = [found.give(name, name.replace("noiommu-", ""), needed=False) for name in names]
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
