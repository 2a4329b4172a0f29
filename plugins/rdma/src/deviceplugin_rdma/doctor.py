"""What ``deviceplugin doctor`` looks at for this plugin."""

from collections.abc import Iterable, Iterator, Sequence

from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.kit import pci, vfio
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.log import few
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_rdma import access, nics
from deviceplugin_rdma.links import Links
from deviceplugin_rdma.nics import Nic

_WHAT = "network cards"
_NAMED = 8


def look(node: Node) -> Iterable[Finding]:
    """Network cards: drivers, RDMA devices, device files, links, and whose sysfs it is."""
    sysfs = Sysfs(node.at("sys"))
    tree = Tree(sysfs, dev=node.at("dev"))
    cards = [one for one in pci.functions(tree) if one.pci_class.startswith("02")]
    found = [nic for nic in nics.look(tree, {}) if nic.function.pci_class.startswith("02")]
    if not cards:
        yield _none(node)
        return
    rdma = [nic for nic in found if nic.rdma]
    yield ok(_WHAT, f"{len(cards)} functions on the PCI bus, {len(rdma)} with RDMA")
    unbound = [one.address for one in cards if not one.driver]
    if unbound:
        yield warning(
            "drivers",
            f"no driver: {few(unbound, _NAMED)}",
            means="the plugin does not offer these functions.",
            do="lspci -nnk shows the modules for each; dmesg why one was not bound.",
        )
    if subs := list(nics.unusable(tree)):
        yield warning(
            "sub-functions",
            few(subs, _NAMED),
            means="the plugin does not offer these sub-functions.",
            do="devlink port function set DEV/PORT state active; dmesg says what a driver lacks.",
        )
    virtual = [nic for nic in found if nic.is_virtual]
    if not (rdma or virtual or "rdma" in node.plugins):
        return  # ordinary cards, such as most nodes have: nobody may want this plugin here
    yield from _of_sysfs(found)
    yield from _of_nodes(rdma, node)
    yield from _of_links(rdma, sysfs)


def _none(node: Node) -> Finding:
    if "rdma" not in node.plugins:
        return ok(_WHAT, "none found")
    return failure(
        _WHAT,
        "none found: no PCI device of class 0x02",
        means="the rdma plugin advertises 0 devices.",
        do="lspci -nn shows what the machine has; a virtual machine needs functions passed "
        "through. In a pod, mount /sys of the host.",
    )


def _of_sysfs(found: Sequence[Nic]) -> Iterator[Finding]:
    physical = [nic for nic in found if not nic.is_virtual]
    on_host = [nic for nic in physical if not vfio.has(nic.function.device)]
    if on_host and not any(nic.interfaces for nic in on_host):
        yield warning(
            "network interfaces",
            "sysfs shows none of any card",
            means="ifNames and pfNames match nothing, link types are guessed, and the card of the "
            "default route may be offered.",
            do="in a pod, mount /sys of the host: deployments/components/host-network-facts.",
        )


def _of_nodes(rdma: Sequence[Nic], node: Node) -> Iterator[Finding]:
    missing = [
        f"{nic.rdma[0]} ({nic.address})"
        for nic in rdma
        if not any(node.exists(f"dev/{name}") for name in access.nodes(nic, "infiniband_verbs"))
    ]
    if missing:
        yield failure(
            "device files of RDMA",
            f"no verbs: {few(missing, _NAMED)}",
            means="these are unhealthy where RDMA is asked for.",
            do="modprobe ib_uverbs; in a pod, mount /dev of the host.",
        )
    if rdma and not node.exists("dev/infiniband/rdma_cm"):
        yield warning(
            "device files of RDMA",
            "/dev/infiniband/rdma_cm does not exist",
            means="programs that connect by addresses (librdmacm) do not work in pods.",
            do="modprobe rdma_ucm.",
        )


def _of_links(rdma: Sequence[Nic], sysfs: Sysfs) -> Iterator[Finding]:
    links = Links(sysfs)
    nics_by_address = {nic.address: nic for nic in rdma}
    links.look(nics_by_address, nics_by_address)
    for nic in rdma:
        if not nic.is_virtual and (problem := links.problem(nic, nic, is_shared=True)):
            yield warning(
                nic.address,
                problem,
                means="shares of it are unhealthy.",
                do="look at the cable and the switch; for Ethernet, ip link set DEV up; for "
                "InfiniBand, a subnet manager must run.",
            )
