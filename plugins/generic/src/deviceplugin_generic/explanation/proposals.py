"""Entries of a configuration for the devices of this machine, with what to know about each."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from deviceplugin.kit.hardware import Device
from deviceplugin.kit.usb import Ledger
from deviceplugin_generic.configuration.globs import literal
from deviceplugin_generic.configuration.loading import DEFAULT_DOMAINS, Devices
from deviceplugin_generic.discovery import abilities
from deviceplugin_generic.discovery.access import Access, access
from deviceplugin_generic.discovery.devices import Share, of_entry
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.tree import VFIO, Tree
from deviceplugin_generic.explanation import pods
from deviceplugin_generic.explanation.candidates import Candidate
from deviceplugin_generic.explanation.pods import WIDTH, lines

_COMMON_SERIAL: Final = re.compile("0*1?|0?123456[0-9]*(abcdef)?|0+[1-9]|(.)\\2+", re.IGNORECASE)
"""Serial numbers that vendors give to all devices of a model."""
_TIMER: Final = "/dev/snd/timer"
_LONGEST_NAME: Final = 40
_ENDS: Final = re.compile("[^a-z0-9]+")


@dataclass
class Proposal:
    """An entry, for one device or for all of a model."""

    name: str
    group: Mapping[str, Any]
    what: str
    """What it is, and where."""
    found_by: str
    """What it is recognized by, and until when."""
    place: str
    """The port, address or kernel's name, which makes the name unique if that is needed."""
    identity: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the configuration."""
        more = {"id": self.identity} if self.identity else {}
        return {"name": self.name, **more, "groups": [self.group]}


def proposals(chosen: Sequence[Candidate], tree: Tree) -> list[Proposal]:
    """Return an entry for each candidate. PCI functions of one model share an entry."""
    groups: dict[tuple[str, ...], list[Candidate]] = defaultdict(list)
    for one in chosen:
        groups[_kind(one)].append(one)
    makers = {"usb": _usb, "pci": _pci, "": _other}
    found = [makers[some[0].bus](some, tree) for some in groups.values()]
    _make_unique(found)
    return found


def _kind(one: Candidate) -> tuple[str, ...]:
    is_pci = one.bus == "pci"
    driver = one.owner.own_driver if one.subsystem == VFIO else ""
    what = _numbers(one.owner).values() if is_pci else [one.owner.path]
    return (one.bus, *what, one.subsystem, driver)


def _usb(some: Sequence[Candidate], tree: Tree) -> Proposal:
    (one,) = some
    owner, numbers = one.owner, _numbers(one.owner)
    serial, warnings = _serial(one, tree)
    model = " ".join(filter(None, map(owner.attribute, ("manufacturer", "product"))))
    select = {"subsystem": "usb", **numbers, **({"serial": literal(serial)} if serial else {})}
    group: dict[str, Any]
    if serial and one.subsystem == "tty" and len(one.parts) > 1:
        group = {"select": {**select, "subsystem": "tty"}}
        warnings.append(f"it has {len(one.parts)} ports, each of which is a device")
    else:
        group = {"select": select if serial else {**select, "name": owner.name}, **_nodes(one)}
    at = f"USB {':'.join(numbers.values())} in port {owner.name}"
    return Proposal(
        _name(owner.attribute("product") or f"usb-{'-'.join(numbers.values())}", one),
        group,
        f"{model}, {at}{_listed(one)}" if model else f"{at}{_listed(one)}",
        "its serial number, in whatever port it is"
        if serial
        else "its port: in another port it is not found, and in this port another one of its model "
        "is taken for it",
        owner.name,
        identity="" if serial else "port",
        warnings=warnings,
    )


def _serial(one: Candidate, tree: Tree) -> tuple[str, list[str]]:
    """Return the serial number to select by, if there is one, and warnings."""
    owner = one.owner
    serial = owner.attribute("serial")
    if not serial:
        return "", ["it has no serial number"]
    if not serial.isprintable() or "\ufffd" in serial:
        return "", ["its serial number has characters that cannot be written"]
    others = [each for each in tree.units.all if each.attribute("serial") == serial]
    twins = [each for each in others if each is not owner and _numbers(each) == _numbers(owner)]
    if twins:
        ports = ", ".join(each.name for each in twins)
        return "", [f"its serial number {serial} is also that of the same model in port {ports}"]
    if len(others) > 1:
        also = ", ".join(each.name for each in others if each is not owner)
        known = f"its serial number {serial} is also that of another model in port {also}"
        return serial, [f"{known}, so its id has the port and changes in another one"]
    if _COMMON_SERIAL.fullmatch(serial):
        known = f"{serial} looks like a serial number that all devices of this model have"
        instead = f'use name: "{owner.name}" instead of serial, and id: port'
        return serial, [f"{known}: if you have several, {instead}"]
    return serial, []


def _pci(some: Sequence[Candidate], tree: Tree) -> Proposal:
    one, numbers = some[0], _numbers(some[0].owner)
    group = {"select": {"subsystem": "pci", **numbers}, **_nodes(one)}
    if one.subsystem == "sound" and tree.is_node(_TIMER):
        group["with"] = [_TIMER]
    if one.subsystem == VFIO:
        group["select"] |= {"driver": one.owner.own_driver}
    listed = ", ".join(f"{each.owner.name}{_listed(each)}" for each in some)
    driver = one.owner.own_driver
    number = f"{len(some)} functions at" if len(some) > 1 else "at"
    return Proposal(
        _name(f"pci-{'-'.join(numbers.values())}" if one.subsystem == VFIO else driver, one),
        group,
        f"PCI {':'.join(numbers.values())} with the driver {driver}, {number} {listed}",
        "its model, in whatever slot; to have one of several, add its address as name",
        one.owner.name,
    )


def _other(some: Sequence[Candidate], _tree: Tree) -> Proposal:
    (one,) = some
    owner = one.owner
    group: dict[str, Any] = {"select": {"subsystem": owner.subsystem, "name": literal(owner.name)}}
    if owner.subsystem == "misc":
        # Its state is in the open file, so containers do not disturb each other.
        group = {"count": "unlimited", **group}
    if owner is not one.parts[0] and one.subsystem:
        group["nodes"] = [one.subsystem]
    fixed = owner.subsystem == "misc"
    return Proposal(
        _name(owner.name, one) if "nodes" in group else _name(owner.name),
        group,
        f"{owner.subsystem} device {owner.name}{_listed(one)}",
        "the kernel's name"
        + ("" if fixed else ", which can change with the hardware and the order of drivers"),
        owner.name,
    )


def _nodes(one: Candidate) -> dict[str, Any]:
    """Return the key that adds the nodes behind the owner."""
    if one.subsystem == "usb":
        return {}
    indices = {part.attribute("index") for part in one.parts}
    if one.subsystem == "video4linux" and {"0"} < indices:
        # The others of a camera deliver metadata.
        return {"nodes": [{"subsystem": "video4linux", "attributes": {"index": "0"}}]}
    return {"nodes": [one.subsystem]}


def _numbers(owner: Device) -> dict[str, str]:
    """Return vendor and product as four digits each, as far as they are known."""
    found = {name: owner.number(which) for which, name in enumerate(("vendor", "product"))}
    return {name: f"{number:04x}" for name, number in found.items() if number is not None}


def _listed(one: Candidate) -> str:
    listed = [f"{path}{_can(part)}" for path, part in zip(one.paths, one.parts, strict=True)]
    return f" ({', '.join(listed)})" if listed else ""


def _can(part: Device) -> str:
    """Return what an input device is, which its name does not say."""
    found = abilities.in_sysfs(part) if part.subsystem == "input" else None
    return f": {' '.join(sorted(found))}" if found else ""


def _slug(text: str) -> str:
    return _ENDS.sub("-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")


def _name(text: str, one: Candidate | None = None) -> str:
    """Return the name of an entry: what the device is called, and the subsystem of its nodes."""
    parts = (_slug(text) or "device", _slug(one.subsystem) if one else "")
    name = "-".join(filter(None, parts))
    return name if len(name) > 1 else f"device-{name}"


def _make_unique(found: Sequence[Proposal]) -> None:
    """Add ports to names that several proposals have, and numbers where that is not enough."""
    doubled = Counter(one.name for one in found)
    taken: set[str] = set()
    for one in found:
        name = f"{one.name}-{_slug(one.place)}" if doubled[one.name] > 1 else one.name
        number = 2
        one.name = name
        while one.name in taken:
            one.name, number = f"{name}-{number}", number + 1
        taken.add(one.name)


_MOST_IDS: Final = 8
_OFTEN_NUMBERS: Final = frozenset({"vendor", "product", "serial", "index"})
_TOP: Final = """\
# Devices of this machine, as entries of a configuration. Remove what you do not mean, and rename
# what you keep: the name is that of the resource, and a part of its ids. Without serial or name, an
# entry selects all devices of a model.
devices:
"""


class _Quoted(str):
    """A string that YAML writes in quotes, because others might read a number."""

    __slots__ = ()


class _InOneLine(dict[str, Any]):
    """A mapping that YAML writes in braces."""


class _Dumper(yaml.SafeDumper):
    """Writes entries as people do."""


_Dumper.add_representer(
    _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)
_Dumper.add_representer(
    _InOneLine,
    lambda dumper, keys: dumper.represent_mapping(
        "tag:yaml.org,2002:map", keys.items(), flow_style=True
    ),
)


def document(found: Sequence[Proposal], tree: Tree) -> str:
    """Return a configuration with comments that say what each entry is."""
    return _TOP + "".join("\n" + _proposal(one, tree) for one in found)


def _proposal(one: Proposal, tree: Tree) -> str:
    comments = [
        f"{one.what}.",
        f"Recognized by {one.found_by}.",
        *(f"Warning: {text}." for text in one.warnings),
    ]
    text = yaml.dump(
        [_quoted(one.entry)], Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=WIDTH
    )
    shares = _shares(one, tree)
    half = pods.half(shares[0].device.resource, _access(shares, tree)) if shares else []
    comments += [_now(shares), *half]
    above = [f"# {line}" for comment in comments for line in lines(comment)]
    return "".join(f"  {line}\n" for line in (*above, *text.splitlines()))


def pod(found: Sequence[Proposal], tree: Tree) -> str:
    """Return the manifest of a pod with a device of each entry of which there is one."""
    shares = [share for one in found for share in _shares(one, tree)]
    return pods.pod(dict.fromkeys(one.device.resource for one in shares), _access(shares, tree))


def _shares(one: Proposal, tree: Tree) -> Sequence[Share]:
    """Return what the plugin would advertise."""
    (entry,) = Devices.parse(yaml.safe_dump(one.entry)).configuration.entries
    return of_entry(entry, DEFAULT_DOMAINS.names[0], tree, Checker(), Ledger())


def _access(shares: Sequence[Share], tree: Tree) -> Access:
    return access((node for one in shares for node in one.device.nodes), tree.roots.dev)


def _now(shares: Sequence[Share]) -> str:
    """Return the ids."""
    ids = list({share.origin: share.device.id for share in reversed(shares)}.values())[::-1]
    more = len(ids) - _MOST_IDS
    listed = ", ".join([*ids[:_MOST_IDS], *([f"and {more} more"] if more > 0 else [])])
    each = f", each with {len(shares) // len(ids)} shares" if len(shares) > len(ids) else ""
    said = f"Its id is now {listed}" if len(ids) == 1 else f"Ids are now {listed}"
    return f"{said}{each}." if ids else "Nothing is found by it now."


def _quoted(value: Any) -> Any:
    """Return a value whose strings are quoted where somebody may read a number."""
    if isinstance(value, dict):
        keys = {k: _Quoted(v) if k in _OFTEN_NUMBERS else _quoted(v) for k, v in value.items()}
        return _InOneLine(keys) if "subsystem" in keys else keys
    return [_quoted(one) for one in value] if isinstance(value, list) else value
