"""Which functions are offered in which resource, and as which devices."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import deviceplugin as dp
from deviceplugin.kit import numa, pieces, sharing
from deviceplugin_rdma.access import Access, access
from deviceplugin_rdma.entries import Entry
from deviceplugin_rdma.nics import Nic
from deviceplugin_rdma.selectors import Selector

Judge = Callable[[Nic, Entry, Access], dp.Health]


@dataclass(frozen=True)
class Offer:
    """A function in a resource."""

    nic: Nic
    entry: Entry
    resource: str
    access: Access
    health: dp.Health


@dataclass(frozen=True)
class Offered:
    """A device, and the functions that a container gets with it."""

    device: dp.Device
    entry: Entry
    offers: tuple[Offer, ...]


def chosen(
    entries: Sequence[Entry], nics: Sequence[Nic], busy: Collection[str]
) -> Iterator[tuple[Entry, Nic, Selector]]:
    """Yield which functions each entry has, and by which selector.

    A function is in the first entry that matches it. Entries whose containers get all functions
    together do not take any from others.

    Args:
        entries: The entries, in order.
        nics: The functions of the node.
        busy: Interfaces that the node itself needs; none of them is given away.
    """
    taken: set[str] = set()
    for entry in entries:
        for nic in nics:
            if nic.address in taken and not entry.together:
                continue
            selector = next((one for one in entry.selectors if one.matches(nic)), None)
            if selector and _can_be_had(nic, entry, busy):
                if not entry.together:
                    taken.add(nic.address)
                yield entry, nic, selector


def _can_be_had(nic: Nic, entry: Entry, busy: Collection[str]) -> bool:
    if not nic.function.pci_class.startswith(entry.pci_class):
        return False
    if entry.is_shared:
        return bool(nic.rdma)
    is_divided = nic.function.is_divided or bool(nic.function.numbered_functions)
    return not is_divided and not {*busy}.intersection(nic.interfaces)


def offers(
    found: Iterator[tuple[Entry, Nic, Selector]],
    resource: Callable[[Entry], str],
    dev: Path,
    judge: Judge,
) -> list[Offer]:
    """Return what is offered of what was chosen."""
    made: list[Offer] = []
    for entry, nic, selector in found:
        rdma = bool(nic.rdma) and (entry.is_shared or selector.is_rdma)
        what = access(nic, dev, rdma=rdma, vhost=selector.with_vhost, extra=entry.extra)
        made.append(Offer(nic, entry, resource(entry), what, judge(nic, entry, what)))
    return made


def devices(found: Sequence[Offer]) -> list[Offered]:
    """Return the devices of all resources."""
    made: list[Offered] = []
    for offer in found:
        if not offer.entry.together:
            shares = sharing.shares(_device(offer), offer.entry.shares)
            made += [Offered(share, offer.entry, (offer,)) for share in shares]
    sets: dict[str, list[Offer]] = {}
    for offer in found:
        if offer.entry.together:
            sets.setdefault(offer.resource, []).append(offer)
    for members in sets.values():
        made += _together(members)
    return made


def _device(offer: Offer) -> dp.Device:
    nic = offer.nic
    node = None if offer.entry.without_topology else nic.function.numa_node
    return dp.Device(
        nic.address,
        resource=offer.resource,
        health=offer.health,
        topology=numa.topology(node),
        nodes=offer.access.nodes,
        attributes=dict(_attributes(nic)),
        hardware=_hardware(offer),
    )


def _hardware(offer: Offer) -> list[str]:
    return [pieces.pci(offer.nic.address), *(node.host_path for node in offer.access.nodes)]


def _attributes(nic: Nic) -> Iterator[tuple[str, str]]:
    yield "pci", nic.address
    yield "driver", nic.driver
    if nic.interfaces:
        yield "interface", ",".join(nic.interfaces)
    if nic.rdma:
        yield "rdma", ",".join(nic.rdma)
    if nic.is_virtual:
        yield "physical", nic.root
    if nic.gpus:
        yield "gpus", ",".join(nic.gpus)


def _together(members: Sequence[Offer]) -> Iterator[Offered]:
    """Yield the shares of all functions together; the nodes are those of healthy functions.

    They are degraded while a function is not healthy, or is degraded itself.
    """
    entry, resource = members[0].entry, members[0].resource
    usable = [one for one in members if one.health]
    reasons = "; ".join(
        f"{one.nic.address}: {one.health.reason}" for one in members if one.health.reason
    )
    device = dp.Device(
        entry.name,
        resource=resource,
        health=dp.Health(bool(usable), reasons),
        nodes=[node for one in usable or members for node in one.access.nodes],
        attributes={"pci": ",".join(one.nic.address for one in members)},
        hardware=[piece for one in members for piece in _hardware(one)],
    )
    whole = entry.name if entry.shares > 1 else ""
    for number in range(entry.shares):
        share = replace(device, id=sharing.share_id(entry.name, number), share_of=whole)
        yield Offered(share, entry, tuple(members))
