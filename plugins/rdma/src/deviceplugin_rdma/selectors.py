"""Which functions a resource has: by facts that the kernel gives about each of them."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from deviceplugin_rdma.nics import Nic

_RANGE: Final = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Root:
    """A physical function by its name or address, and which of its virtual functions."""

    name: str
    ranges: tuple[range, ...] = ()
    problem: str = ""
    """What is wrong with the text; empty if nothing is."""

    def has(self, names: Iterable[str], number: int | None) -> bool:
        """Return whether a function is meant; ``number`` is that of a virtual function."""
        if self.name.lower() not in (name.lower() for name in names):
            return False
        return not self.ranges or any(number in numbers for numbers in self.ranges)


@lru_cache(maxsize=256)
def numbered(text: str) -> Root:
    """Return what ``ens1f0`` or ``ens1f0#0,2-7`` means."""
    name, sign, numbers = text.partition("#")
    found = [_RANGE.fullmatch(part) for part in numbers.split(",")] if sign else []
    ranges = [range(int(one[1]), int(one[2] or one[1]) + 1) for one in found if one]
    if not name or len(ranges) < len(found) or not all(ranges):
        what = "is not a name with numbers of virtual functions, as in ens1f0#0,2-7"
        return Root(name, problem=what)
    return Root(name, tuple(ranges))


@dataclass(frozen=True)
class Selector:
    """What must hold of a function. Of several values one must match; without values any does."""

    vendors: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    acpi_indexes: tuple[str, ...] = ()
    pf_names: tuple[str, ...] = ()
    root_devices: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    link_types: tuple[str, ...] = ()
    is_rdma: bool = False
    """Whether it must have RDMA devices. Containers then get their nodes."""
    is_virtual: bool | None = None
    with_vhost: bool = False
    """Whether containers also get /dev/vhost-net and /dev/net/tun. It selects nothing."""

    def matches(self, nic: Nic) -> bool:
        """Return whether all of it holds of a function."""
        pairs = (
            (self.vendors, [nic.vendor]),
            (self.devices, [nic.device]),
            (self.drivers, [nic.driver]),
            (self.addresses, [nic.address]),
            (self.acpi_indexes, [nic.acpi_index]),
            (self.interfaces, nic.interfaces),
            (self.link_types, [nic.link_type]),
        )
        return (
            all(_meets(wanted, found) for wanted, found in pairs)
            and _has_root(self.pf_names, nic.root_names.interfaces, nic)
            and _has_root(self.root_devices, [nic.root], nic)
            and (bool(nic.rdma) or not self.is_rdma)
            and self.is_virtual in (None, nic.is_virtual)
        )


def _meets(wanted: Collection[str], found: Collection[str]) -> bool:
    return not wanted or any(one in wanted for one in found)


def _has_root(texts: Collection[str], names: Collection[str], nic: Nic) -> bool:
    """Return whether it is a virtual function of one of the roots, as the SR-IOV plugin has it.

    A card is none, or pods would get it until its virtual functions are created.
    """
    if not texts:
        return True
    return nic.is_virtual and any(numbered(text).has(names, nic.number) for text in texts)
