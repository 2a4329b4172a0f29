"""Which functions are advertised as which devices, and which of them a container should get."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import files, numa, pieces, sharing, vdpa
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin_rdma.access import Access, access
from deviceplugin_rdma.entries import Entry, Selector
from deviceplugin_rdma.nics import Nic

Judge = Callable[[Nic, Entry, Access], dp.Health]

_NOWHERE: Final = -1
_VERSION: Final = "1.1.0"
_END: Final = "-device.json"
_OWN: Final = re.compile("[0-9a-f]{4,8}:[^/]*|[a-z0-9_]+[.]sf[.][0-9]+")
"""Ids, as opposed to ends of other, longer names of resources before an id."""


@dataclass(frozen=True)
class AdvertisedFunction:
    """A function in a resource."""

    nic: Nic
    entry: Entry
    resource: str
    access: Access
    health: dp.Health


@dataclass(frozen=True)
class AdvertisedDevice:
    """A device, and the functions that a container gets with it."""

    device: dp.Device
    entry: Entry
    offers: tuple[AdvertisedFunction, ...]


def chosen(
    entries: Sequence[Entry], nics: Sequence[Nic], busy: Collection[str]
) -> Iterator[tuple[Entry, Nic, Selector]]:
    """Yield which functions each entry has, and by which selector.

    A function is in the first entry that matches it. Entries whose containers get all functions
    together do not take any from others; nor does such an entry have any if it is wrong. No
    interface that the node needs (``busy``) is given away.
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
    if entry.problem:
        return entry.is_for(nic) and not entry.together
    if entry.is_shared:
        return entry.is_for(nic) and bool(nic.rdma)
    is_needed = any(name in busy for name in (*nic.interfaces, *(nic.virtio or ())))
    return entry.is_for(nic) and not nic.is_divided and not is_needed


def offers(
    found: Iterable[tuple[Entry, Nic, Selector]],
    resource: Callable[[Entry], str],
    dev: Path,
    judge: Judge,
) -> list[AdvertisedFunction]:
    """Return what is offered of what was chosen."""
    made: list[AdvertisedFunction] = []
    for entry, nic, selector in found:
        rdma = bool(nic.rdma) and (entry.is_shared or selector.is_rdma)
        what = access(nic, dev, rdma=rdma, vhost=selector.with_vhost, of_vdpa=selector.vdpa)
        if entry.extra:
            keys = dict.fromkeys(("*", nic.function.address, nic.address))
            what.info["extra"] = {k: v for key in keys for k, v in entry.extra.get(key, {}).items()}
        made.append(AdvertisedFunction(nic, entry, resource(entry), what, judge(nic, entry, what)))
    return made


def devices(
    found: Sequence[AdvertisedFunction], *, by_name: bool = False
) -> list[AdvertisedDevice]:
    """Return the devices of all resources; ``by_name`` with the kernel's names as ids.

    Functions of one IOMMU group are one device. Those of entries that are wrong are none, and keep
    their group from others.
    """
    made: list[AdvertisedDevice] = []
    single = [offer for offer in found if not offer.entry.together]
    for group in _by(single, lambda one: one.access.group or one.nic.address):
        usable = [one for one in group if not one.entry.problem]
        for members in _by(usable, lambda one: one.resource):
            entry, device = members[0].entry, _device(members, group[0], by_name=by_name)
            shares = sharing.shares(device, entry.shares)
            made += [AdvertisedDevice(share, entry, tuple(members)) for share in shares]
    for members in _by((one for one in found if one.entry.together), lambda one: one.resource):
        made += _together(members)
    return made


def _by(
    found: Iterable[AdvertisedFunction], key: Callable[[AdvertisedFunction], str]
) -> list[list[AdvertisedFunction]]:
    """Return functions that have the same ``key`` together."""
    groups: dict[str, list[AdvertisedFunction]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return [*groups.values()]


def _device(
    members: Sequence[AdvertisedFunction], owner: AdvertisedFunction, *, by_name: bool
) -> dp.Device:
    """Return the device of a function, or of those of an IOMMU group, which is the ``owner``'s.

    In another resource it is nothing but a name. If that is held, since the group was its own once,
    what the pod has is recognized in the owner's device.
    """
    first = members[0]
    node = None if first.entry.without_topology else first.nic.function.numa_node
    reasons = dict.fromkeys(one.health.reason for one in members if one.health.reason)
    health = dp.Health(all(one.health for one in members), "; ".join(reasons))
    given = members if owner.resource == first.resource else ()
    if not given:
        health = dp.Health.unhealthy(
            f"IOMMU group {first.access.group} has one holder, and {owner.nic.address} of it is "
            f"a device of {owner.resource}: select both in one resource"
        )
    return dp.Device(
        first.nic.name if by_name else first.nic.address,
        resource=first.resource,
        health=health,
        topology=numa.topology(node),
        nodes=[*dict.fromkeys(node for one in given for node in one.access.nodes)],
        attributes=dict(_attributes(first.nic)),
        hardware=[*dict.fromkeys(piece for one in given for piece in _hardware(one))],
    )


def _hardware(offer: AdvertisedFunction) -> list[str]:
    """Return the pieces. A vDPA device is its function, unless that is shared."""
    nic, unit = offer.nic, offer.access.unit
    made = [] if offer.entry.is_shared else filter(None, map(vdpa.node, nic.vdpas))
    nodes = (node.host_path for node in offer.access.nodes)
    own = unit.pieces if unit else ()
    return [pieces.pci(nic.address), *own, *made, *nodes]


def _attributes(nic: Nic) -> Iterator[tuple[str, str | int]]:
    yield "pci", nic.function.address
    yield "driver", nic.driver
    if nic.sub:
        yield "auxiliary", nic.name
        yield "sfnum", nic.number or 0
    if nic.vdpas:
        yield "vdpa", ",".join(one.name for one in nic.vdpas)
    if nic.interfaces:
        yield "interface", ",".join(nic.interfaces)
    if nic.rdma:
        yield "rdma", ",".join(nic.rdma)
    if nic.is_virtual:
        yield "physical", nic.root
    if nic.gpus:
        yield "gpus", ",".join(nic.gpus)


def _together(members: Sequence[AdvertisedFunction]) -> Iterator[AdvertisedDevice]:
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
        hardware=[*dict.fromkeys(piece for one in members for piece in _hardware(one))],
    )
    whole = entry.name if entry.shares > 1 else ""
    for number in range(entry.shares):
        share = replace(device, id=sharing.share_id(entry.name, number), share_of=whole)
        yield AdvertisedDevice(share, entry, tuple(members))


class Placement:
    """What to prefer among the devices of a look. Never changes, so it can be asked in an RPC.

    A container gets functions of one NUMA node if one node has enough. Of these, functions go by
    the policy: first among physical functions, then among the functions of each.
    """

    def __init__(self, found: Iterable[AdvertisedDevice], policy: Policy) -> None:
        self._policy: Policy = policy
        self._places: dict[str, dict[str, tuple[str, str]]] = {}
        self._nodes: dict[str, int] = {}
        for one in found:
            nic = one.offers[0].nic
            places = self._places.setdefault(str(one.device.resource), {})
            places[one.device.id] = (nic.root, nic.address)
            node = nic.function.numa_node
            self._nodes[one.device.id] = _NOWHERE if node is None else node

    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> list[dp.Device]:
        """Return the devices that go together best."""
        known = {device.id: device for device in (*available, *required)}
        needed = [device.id for device in required]
        shares = Shares(self._of(known.values()), self._policy, distinct=True)
        groups = [group for group in self._groups(known) if len({*group, *needed}) >= size]
        if not groups:
            groups = [list(known)]
        best = min(groups, key=self._rank(groups, needed))
        return [known[one] for one in shares.choose(best, needed, size)]

    def _of(self, devices: Iterable[dp.Device]) -> Mapping[str, tuple[str, str]]:
        names = {str(device.resource) for device in devices}
        return {one: place for name in names for one, place in self._places.get(name, {}).items()}

    def _groups(self, ids: Iterable[str]) -> list[list[str]]:
        """Return the ids of each NUMA node."""
        groups: dict[int, list[str]] = {}
        for one in ids:
            groups.setdefault(self._nodes.get(one, _NOWHERE), []).append(one)
        return [groups[node] for node in sorted(groups)]

    def _rank(
        self, groups: Sequence[Sequence[str]], needed: Sequence[str]
    ) -> Callable[[Sequence[str]], tuple[int, int, int]]:
        """Return what is less for a better group: has what is required, then the policy."""
        sign = 1 if self._policy == "packed" else -1

        def rank(group: Sequence[str]) -> tuple[int, int, int]:
            return -len({*group} & {*needed}), sign * len(group), groups.index(group)

        return rank


def publish(folder: Path, resource: str, found: Iterable[AdvertisedDevice]) -> Iterator[str]:
    """Write the files of a resource's devices, remove those of others; yield what prevents it."""
    start = f"{resource.replace('/', '-')}-"
    texts = {f"{start}{one.device.id}{_END}": _text(one) for one in found}
    wanted = {name: text for name, text in texts.items() if text}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            files.write(folder / name, text, mode=0o444)
        for path in folder.glob(f"{start}*{_END}"):
            own = path.name.removeprefix(start).removesuffix(_END)
            if _OWN.fullmatch(own) and path.name not in wanted:
                files.remove(path)
    except OSError as error:
        yield str(error)


def _text(one: AdvertisedDevice) -> str:
    """Return device information; empty of a sub-function, which the specification does not have."""
    nic, access = one.offers[0].nic, one.offers[0].access
    if access.vdpa:
        facts = {"parent-device": access.vdpa.name, "driver": vdpa.kind(access.vdpa)}
        facts |= {"path": access.info["vdpa"]["mount"]} if access.info["vdpa"] else {}
        facts |= {} if nic.sub else {"pci-address": nic.address}
        return json.dumps({"type": "vdpa", "version": _VERSION, "vdpa": facts})
    if nic.sub:
        return ""
    facts = {"pci-address": nic.address}
    if "rdma" in access.info:
        facts["rdma-device"] = ",".join(nic.rdma)
    return json.dumps({"type": "pci", "version": _VERSION, "pci": facts})


def unused(found: Iterable[AdvertisedFunction]) -> Iterator[str]:
    """Yield which vDPA devices no container gets, because their function has another one."""
    for one in found:
        if (given := one.access.vdpa) and len(one.nic.vdpas) > 1:
            others = ", ".join(each.name for each in one.nic.vdpas if each is not given)
            yield f"{one.resource}: {one.nic.address} is given with {given.name}, not {others}"
