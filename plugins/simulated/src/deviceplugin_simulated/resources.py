"""Resources in a configuration file: devices by a pattern, and what makes them differ."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import InvalidError, Kind, Place
from deviceplugin_simulated.division import DIVISION, Division

MAX_COUNT: Final = 100_000
"""The most devices of one resource. A kubelet accepts a list of about 80,000 at most."""
MAX_ID_LENGTH: Final = 63
"""Characters, by the device plugin API."""
PLACEHOLDERS: Final = ("index", "id", "numa", "node")
_DOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.IGNORECASE
)
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_RESOURCE_NAME: Final = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-.\w]{0,61}[A-Za-z0-9])?$"
_CDI: Final = re.compile(r"[A-Za-z][-.\w]*/[A-Za-z][-\w]*=[A-Za-z0-9][-.:\w]*", re.ASCII)
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_OF_PARTS: Final = frozenset({"parent", "profile", "placementStart"})
"""Attributes of parts."""
_NUMA_NODES: Final = 1024
"""The most NUMA nodes that Linux supports."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The devices of one resource.

    In every string, ``{index}`` is replaced by the number of the device, from 0, ``{id}`` by its
    id, ``{numa}`` by its NUMA node and ``{node}`` by the name of the node. Ids may use only the
    index and the node.
    """

    resource: str
    count: int
    id: str
    node: str = ""
    numa: Sequence[int] = ()
    """NUMA nodes. Consecutive blocks of devices are assigned to them."""
    nodes: Sequence[dp.DeviceNode] = ()
    mounts: Sequence[dp.Mount] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_names: Sequence[str] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    parts: Division | None = None

    def devices(self) -> Iterator[dp.Device]:
        """Yield the devices in the order of their indices, each before its parts."""
        for index in range(self.count):
            device = self._device(index)
            yield from [device] if self.parts is None else self._divided(index, device, self.parts)

    def _divided(self, index: int, whole: dp.Device, division: Division) -> Iterator[dp.Device]:
        of = dp.Counters(whole.id, division.amounts)
        if division.whole:
            yield self._part(whole, dp.Part(of, of.amounts, on_demand=False), {"profile": "whole"})
        for part, profile, placement in division.parts(of):
            device = self._device(index, f"{whole.id}/{profile}@{placement}")
            about = {"parent": whole.id, "profile": profile}
            yield self._part(device, part, {**about, "placementStart": placement})

    def _part(self, device: dp.Device, part: dp.Part, about: Mapping[str, str | int]) -> dp.Device:
        """Return ``device`` as a part. Each has a profile: a selector by what one lacks fits none.

        All of them are one piece of hardware, which is held as one.
        """
        counters = self.parts.counters if self.parts else ()
        return replace(
            device,
            part=part,
            attributes={**device.attributes, **about},
            capacity={name: part.consumes.get(name, 0) for name in counters},
            hardware=[f"{self.resource}/{part.of.name}"],
        )

    def _device(self, index: int, device_id: str = "") -> dp.Device:
        numa = self.numa[index * len(self.numa) // self.count] if self.numa else None
        values = {"index": str(index), "node": self.node}
        values |= {
            "id": device_id or fill(self.id, values),
            "numa": "" if numa is None else str(numa),
        }

        def filled(texts: Mapping[str, str]) -> dict[str, str]:
            return {fill(name, values): fill(text, values) for name, text in texts.items()}

        return dp.Device(
            values["id"],
            resource=self.resource,
            topology=None if numa is None else dp.Topology((numa,)),
            nodes=[
                dp.DeviceNode(
                    fill(one.host_path, values), fill(one.container_path, values), one.permissions
                )
                for one in self.nodes
            ],
            mounts=[
                dp.Mount(
                    fill(one.host_path, values), fill(one.container_path, values), one.read_only
                )
                for one in self.mounts
            ],
            envs=filled(self.envs),
            annotations=filled(self.annotations),
            cdi_names=[fill(name, values) for name in self.cdi_names],
            attributes=filled(self.attributes),
        )


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with each ``{name}`` of ``values`` replaced. Other braces stay."""
    if "{" not in text:
        return text
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def id_problem(device_id: str) -> str:
    """Return why a device cannot have this id, or an empty string."""
    if not device_id:
        return "is empty"
    if len(device_id) > MAX_ID_LENGTH:
        return f"has {len(device_id)} characters, of at most {MAX_ID_LENGTH}"
    if not device_id.isprintable() or device_id.strip() != device_id:
        return "has control characters or blanks at an end"
    return ""


def annotation_problem(name: str) -> str:
    """Return why an annotation cannot have this name, or an empty string.

    The length is not checked, because container runtimes accept longer names than pods.
    """
    domain, slash, last = name.rpartition("/")
    if "/" in domain:
        return "has more than one slash"
    if slash and not _DOMAIN.fullmatch(domain):
        return "has no domain before the slash, such as example.com"
    if not _NAME.fullmatch(last):
        return "must be letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    return ""


def _unknown(known: Sequence[str], given: str) -> str:
    """Return what is wrong with the placeholders of a string; empty if all are known."""
    for name in _PLACEHOLDER.findall(given):
        if name not in known:
            return f"has {{{name}}}: {cfg.suggestion(name, known)}"
    return ""


def _path_problem(given: str) -> str:
    return _unknown(PLACEHOLDERS, given) or (
        "" if given.startswith("/") else "is not an absolute path"
    )


def _numa_nodes(parts: Sequence[str]) -> list[int]:
    found: list[int] = []
    for part in parts:
        ends = _RANGE.fullmatch(part.strip())
        last = int(ends[2] or ends[1]) if ends else _NUMA_NODES
        if ends is None or not int(ends[1]) <= last < _NUMA_NODES:
            raise ValueError("is not a list of NUMA nodes, such as 0-3,8")
        found += range(int(ends[1]), last + 1)
    return found


_TEMPLATE: Final = cfg.text(digits=True, problem=partial(_unknown, PLACEHOLDERS))
_TEMPLATES: Final = cfg.mapping_of(_TEMPLATE, partial(_unknown, PLACEHOLDERS))
_PATH: Final = cfg.text(digits=True, problem=_path_problem)
_NUMA: Final = cfg.either(
    cfg.text(digits=True).to(lambda given: _numa_nodes(given.split(","))),
    cfg.list_of(cfg.text(digits=True)).to(_numa_nodes),
    wanted="NUMA nodes, such as 0-3,8",
)


def _paths(make: Any, option: str, kind: Kind[Any]) -> Kind[tuple[Any, ...]]:
    """Return lists of paths, or of mappings with the key ``host``."""
    host, container = cfg.needed(_PATH, "host_path"), cfg.as_argument(_PATH, "container_path")
    whole_form = cfg.record(make, {"host": host, "container": container, option: kind})
    return cfg.list_of(cfg.either(_PATH.to(make), whole_form))


_NODES: Final = _paths(
    dp.DeviceNode,
    "permissions",
    cfg.text(r"^(?!.*(.).*\1)[rwm]+$", "of the letters r, w and m, each once"),
)
_RESOURCE: Final[Kind[dict[str, Any]]] = cfg.record(
    dict,
    {
        "count": cfg.integer(0, MAX_COUNT),
        "id": cfg.text(digits=True, problem=partial(_unknown, ("index", "node"))),
        "numa": _NUMA,
        "nodes": _NODES,
        "mounts": _paths(dp.Mount, "read-only", cfg.boolean()),
        "envs": _TEMPLATES,
        "annotations": _TEMPLATES,
        "cdi-names": cfg.as_argument(cfg.list_of(_TEMPLATE, single=True), "cdi_names"),
        "attributes": _TEMPLATES,
        "parts": DIVISION,
    },
)


def read_resources(places: Mapping[str, Place], where: Place, node: str) -> list[dp.Device]:
    """Return the devices of resources by their names, on the node called ``node``.

    ``where`` is the place of all of them, for faults that concern several.
    """
    devices: list[dp.Device] = []
    for name, place in places.items():
        if not cfg.matches(name, _RESOURCE_NAME):
            place.fault("is not the name of a resource, such as example.com/gpu")
        with suppress(InvalidError):
            made = list(_pattern(place, name, node).devices())
            devices += made
            if problem := next(_problems(made), ""):
                place.fault(problem)
    _check_unique(places, where, devices)
    return devices


def _pattern(place: Place, resource: str, node: str) -> Pattern:
    given = {"count": 1, "id": f"{resource.rpartition('/')[2]}-{{index}}", **_RESOURCE.read(place)}
    pattern = Pattern(resource=resource, node=node, **given)
    if pattern.parts and pattern.count * (1 + pattern.parts.count) > MAX_COUNT:
        raise place.fault(f"count: {pattern.count} with their parts are more than {MAX_COUNT}")
    if pattern.parts and (own := _OF_PARTS & pattern.attributes.keys()):
        raise place.fault(f"attributes.{min(own)}: parts have their own: choose another name")
    return pattern


def _problems(devices: Sequence[dp.Device]) -> Iterator[str]:
    for device in devices:
        if problem := id_problem(device.id):
            yield f"id {device.id!r} {problem}"
        yield from (f"device {device.id}: {problem}" for problem in _name_problems(device))


def _name_problems(device: dp.Device) -> Iterator[str]:
    for name in device.envs:
        if not name or "=" in name or "\0" in name:
            yield f"{name!r} is not the name of a variable"
    for name in device.annotations:
        if problem := annotation_problem(name):
            yield f"annotation {name!r} {problem}"
    for name in device.cdi_names:
        if not _CDI.fullmatch(name):
            yield f"{name!r} is not a CDI name, such as example.com/gpu=0"


def _check_unique(places: Mapping[str, Place], where: Place, devices: Sequence[dp.Device]) -> None:
    owners: dict[str, str] = {}
    for device in devices:
        owner = owners.setdefault(device.id, device.resource)
        if owner != device.resource:
            places[device.resource].fault(f"id {device.id!r} belongs to {owner} too")
            return
    doubles = len(devices) - len(owners)
    if doubles:
        where.fault(f"{doubles} ids are not unique: put {{index}} into them")
