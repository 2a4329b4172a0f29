"""The resources of the configuration, in the formats of the two plugins that people come from.

``resourceList`` is that of the SR-IOV network device plugin, with a few keys more. ``configList``
is that of the RDMA shared device plugin.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import Place
from deviceplugin_rdma.nics import Nic

_RANGE: Final = re.compile("([0-9]{1,10})(?:-([0-9]{1,10}))?")


@dataclass(frozen=True, slots=True)
class Root:
    """A physical function by its name or address, and which of those that it is divided into."""

    name: str
    ranges: tuple[range, ...] = ()
    problem: str = ""
    """What is wrong with the text; empty if nothing is."""

    def has(self, names: Iterable[str], number: int | None) -> bool:
        """Return whether a function is meant; ``number`` is its own among those of the card."""
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
        what = "is not a name with numbers of its functions, as in ens1f0#0,2-7"
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
    vdpa: str = ""
    """The kind of vDPA device, ``vhost`` or ``virtio``, that it must have. Containers get it."""
    aux_types: tuple[str, ...] = ()
    """It selects nothing: all auxiliary devices that there are, are ``sf``."""
    with_vhost: bool = False
    """Whether containers also get /dev/vhost-net and /dev/net/tun. It selects nothing."""

    def matches(self, nic: Nic) -> bool:
        """Return whether all of it holds of a function."""
        pairs = (
            (self.vendors, [f"{nic.function.vendor or 0:04x}"]),
            (self.devices, [f"{nic.function.product or 0:04x}"]),
            (self.drivers, [nic.driver]),
            (self.addresses, [nic.function.address]),
            (self.acpi_indexes, [nic.function.device.attribute("acpi_index")]),
            (self.interfaces, nic.interfaces),
            (self.link_types, [nic.link_type]),
        )
        return (
            all(_meets(wanted, found) for wanted, found in pairs)
            and _has_root(self.pf_names, nic.root_names.interfaces, nic)
            and _has_root(self.root_devices, [nic.root], nic)
            and (bool(nic.rdma) or not self.is_rdma)
            and self.is_virtual in (None, nic.is_virtual)
            and (not self.vdpa or nic.vdpa(self.vdpa) is not None)
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


_MOST_SHARES: Final = 10000
SHARED_PREFIX: Final = "rdma"
_NET, AUXILIARY = "netDevice", "auxNetDevice"
_CLASSES: Final = {_NET: "02", "accelerator": "12", AUXILIARY: "02"}
"""PCI classes of the types of devices."""
KIND: Final = cfg.choice(*_CLASSES)


@dataclass(frozen=True)
class Entry:
    """A resource, and which functions it has."""

    name: str
    prefix: str = ""
    """Domain of the resource; empty for that of the settings."""
    selectors: tuple[Selector, ...] = (Selector(),)
    """A function is in the resource if any of them matches."""
    shares: int = 1
    """Pods that can have a function at once; if it is 1, the function is moved into the pod."""
    together: bool = False
    """Whether a container gets all functions of the resource, as with the RDMA shared plugin."""
    kind: str = _NET
    """``netDevice``, ``accelerator``, or ``auxNetDevice`` for sub-functions; empty for any."""
    without_topology: bool = False
    extra: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What a container is told of a function besides, by its address; ``*`` is for all."""
    problem: str = ""
    """What is wrong with it. Then it offers nothing, and its selectors reserve functions."""

    @property
    def is_shared(self) -> bool:
        """Whether functions stay with the host, and pods get RDMA nodes only."""
        return self.together or self.shares > 1

    def is_for(self, nic: Nic) -> bool:
        """Return whether a function is of its type, whatever the selectors say."""
        if not self.kind:
            return True
        is_sub = nic.sub is not None
        is_of_class = nic.function.pci_class.startswith(_CLASSES[self.kind])
        return is_of_class and is_sub == (self.kind == AUXILIARY)


DEFAULT: Final = (Entry("hca", SHARED_PREFIX, (Selector(is_rdma=True, is_virtual=False),), 100),)


def _unsupported(why: str) -> cfg.Key[Any]:
    """Return a key of what another plugin can and this one cannot; an empty value is ignored."""

    def read(place: Place) -> None:
        value = place.plain()
        if value not in ("", [], None):
            raise place.fault(f"{value!r} is not supported: {why}")

    kind = cfg.Kind(read, {"maxItems": 0, "maxLength": 0}, cfg.anything().takes, "absent")
    return cfg.as_argument(kind, "unsupported")


def _selector(unsupported: None = None, **given: Any) -> Selector:
    del unsupported
    return Selector(**given)


_ADDRESS: Final = "^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}[.][0-7]$"
_TEXTS: Final = cfg.list_of(cfg.text())
_HEX: Final = cfg.list_of(
    cfg.text("^[0-9a-fA-F]{4}$", "4 hex digits, such as 15b3", digits=True).to(str.lower)
)
_ADDRESSES: Final = cfg.list_of(
    cfg.text(_ADDRESS, "a PCI address such as 0000:3b:00.0").to(str.lower)
)
_ROOTS: Final = cfg.list_of(cfg.text(problem=lambda text: numbered(text).problem))
_SUBS_ONLY: Final = "sf: of auxiliary devices, only sub-functions have an id that lasts"
_LINKS: Final = cfg.list_of(cfg.choice("ether", "infiniband"))

SELECTOR: Final = cfg.record(
    _selector,
    {
        "vendors": _HEX,
        "devices": _HEX,
        "drivers": _TEXTS,
        "pciAddresses": cfg.as_argument(_ADDRESSES, "addresses"),
        "acpiIndexes": cfg.as_argument(cfg.list_of(cfg.text(digits=True)), "acpi_indexes"),
        "pfNames": cfg.as_argument(_ROOTS, "pf_names"),
        "rootDevices": cfg.as_argument(_ROOTS, "root_devices"),
        "ifNames": cfg.as_argument(_TEXTS, "interfaces"),
        "linkTypes": cfg.as_argument(_LINKS, "link_types"),
        "isRdma": cfg.as_argument(cfg.boolean(), "is_rdma"),
        "isVirtual": cfg.as_argument(cfg.boolean(), "is_virtual"),
        "needVhostNet": cfg.as_argument(cfg.boolean(), "with_vhost"),
        "ddpProfiles": _unsupported("sysfs does not have profiles; use pciAddresses or pfNames"),
        "pKeys": _unsupported("sysfs does not say which one counts; use pfNames"),
        "vdpaType": cfg.as_argument(cfg.text("^(vhost|virtio|)$", "vhost or virtio"), "vdpa"),
        "auxTypes": cfg.as_argument(cfg.list_of(cfg.text("^sf$", _SUBS_ONLY)), "aux_types"),
    },
    any_case=True,
).called("Selector")


def _misplaced(place: Place, _given: Mapping[str, Place]) -> None:
    """Say where an unknown key belongs that is a selector."""
    selectors = {key.lower() for key in SELECTOR.schema["properties"]}
    for key, one in place.keys().items():
        if key.lower() in selectors:
            one.fault("belongs into selectors; the SR-IOV network device plugin ignores it here")


def _entry(**given: Any) -> Entry:
    made = Entry(**given)
    for one in made.selectors:
        if one.aux_types and made.kind != AUXILIARY:
            raise ValueError(f"auxTypes needs deviceType: {AUXILIARY}")
        if one.vdpa and (one.is_rdma or made.is_shared):
            raise ValueError("vdpaType excludes isRdma and shares: a vDPA device has one user")
    return made


ENTRY: Final = cfg.record(
    _entry,
    {
        "resourceName": cfg.needed(
            cfg.text("^[a-zA-Z0-9_-]+$", "a name of letters, digits, - and _"), "name"
        ),
        "resourcePrefix": cfg.as_argument(cfg.text(), "prefix"),
        "deviceType": cfg.as_argument(KIND, "kind"),
        "excludeTopology": cfg.as_argument(cfg.boolean(), "without_topology"),
        "selectors": cfg.list_of(SELECTOR, 1, single=True),
        "additionalInfo": cfg.as_argument(
            cfg.mapping_of(cfg.either(cfg.mapping_of(cfg.text(digits=True)), cfg.nothing({}))),
            "extra",
        ),
        "shares": cfg.integer(1, _MOST_SHARES),
    },
    rules=[_misplaced],
    any_case=True,
).called("Resource")

_SHARED_SELECTOR: Final = cfg.record(
    _selector,
    {
        "vendors": _HEX,
        "deviceIDs": cfg.as_argument(_HEX, "devices"),
        "drivers": _TEXTS,
        "ifNames": cfg.as_argument(_TEXTS, "interfaces"),
        "linkTypes": cfg.as_argument(_LINKS, "link_types"),
    },
    any_case=True,
)


def _one_way(place: Place, given: Mapping[str, Place]) -> None:
    """Check that functions are chosen in one of the two ways."""
    values = {key: given[key].plain() for key in ("selectors", "devices") if key in given}
    chosen = [one for one in values.values() if any(one.values() if isinstance(one, dict) else one)]
    if not chosen:
        place.fault("chooses no functions: give selectors, such as {vendors: [15b3]}")
    if len(chosen) > 1:
        place.fault("selectors and devices exclude each other: use selectors")


def _shared(
    name: str,
    prefix: str = SHARED_PREFIX,
    shares: int = 0,
    selectors: Selector | None = None,
    devices: tuple[str, ...] = (),
) -> Entry:
    chosen = Selector(interfaces=devices) if devices else selectors or Selector()
    return Entry(name, prefix or SHARED_PREFIX, (chosen,), shares, together=True)


SHARED: Final = cfg.record(
    _shared,
    {
        "resourceName": cfg.needed(
            cfg.text("^[a-zA-Z0-9_]+$", "a name of letters, digits and _"), "name"
        ),
        "resourcePrefix": cfg.as_argument(cfg.text(), "prefix"),
        "rdmaHcaMax": cfg.as_argument(cfg.integer(0, _MOST_SHARES), "shares"),
        "selectors": _SHARED_SELECTOR,
        "devices": _TEXTS,
    },
    rules=[_one_way],
    any_case=True,
)
