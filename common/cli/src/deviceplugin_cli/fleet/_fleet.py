"""The devices of a cluster, by resource and node; as a table for people and as JSON."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from deviceplugin._app.text_table import aligned
from deviceplugin._inventory.divided import Profiles, listed
from deviceplugin._inventory.divided import total as sum_of
from deviceplugin._inventory.validation import natural_key
from deviceplugin.tools import _command_line
from deviceplugin.tools._node_devices import Claimed, Count, Place, Slice, count
from deviceplugin_cli.fleet._facts import Held, NodeFacts, PluginObject

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_HEADER: Final = ("RESOURCE", "NODE", "HEALTHY", "TOTAL", "HELD", "PROBLEM")
_NONE: Final = "-"
_UNLESS: Final = ", unless DRA has them"
_OF_OBJECTS: Final = ("name", "plugin", "ready", "reason", "message")
_OF_PROBLEMS: Final = ("resource", "node", "healthy", "total")
_LONGEST: Final = 300
"""Characters of a message in the table."""


@dataclass(frozen=True, slots=True)
class Row:
    """The devices of one resource on one node."""

    resource: str
    node: str
    healthy: int
    """How many can be allocated, whether pods hold them or not."""
    total: int
    held: int | None
    """How many pods have requested and claims hold; None if that is unknown."""
    cordoned: bool = False
    """Whether no new pods are scheduled to the node. That is not a problem."""
    problem: str = ""
    drivers: Sequence[str] = ()
    """The DRA drivers that offer these, beside or in place of a device plugin."""
    profiles: Profiles = field(default_factory=dict)
    """The parts that can be made of these, by profile."""


class Dra(NamedTuple):
    """What is offered and held through DRA; None if it is unknown."""

    slices: Sequence[Slice] | None
    claims: Sequence[Claimed] | None

    def of_some(self, nodes: Iterable[NodeFacts]) -> "Dra":
        """Return this without claims of devices elsewhere, whose slices were not read."""
        pools = {one.pool for one in self.slices or ()}
        own = {(node.name, resource) for node in nodes for resource in node.total}
        held = [one for one in self.claims or () if one.pool in pools or one.place in own]
        return Dra(self.slices, None if self.claims is None else held)

    @property
    def doubt(self) -> str:
        """As in ``Fleet``."""
        return _UNLESS if self.slices is None or self.claims is None else ""


@dataclass(slots=True)
class Sum:
    """A resource on all nodes."""

    nodes: int = 0
    healthy: int = 0
    total: int = 0
    held: int | None = 0
    problems: int | None = 0
    """Nodes where something is wrong; None if unknown."""
    profiles: Profiles = field(default_factory=dict)
    """The parts that can be made of these, by profile."""


@dataclass(slots=True)
class Fleet:
    """What is known of a cluster. Rows and sums are in natural order of resource and node."""

    rows: Sequence[Row] = ()
    sums: Mapping[str, Sum] = field(default_factory=dict)
    nodes: Sequence[NodeFacts] | None = None
    """Those that were asked for; None if they may not be listed."""
    objects: Sequence[PluginObject] | None = None
    """Of the operator, by name; None if that is unknown, or there is no operator."""
    unknown: list[str] = field(default_factory=list)
    """What is unknown, a message for each."""
    doubt: str = ""
    """What is added to a problem that may be none, as it is unknown what DRA has; or nothing."""
    missing: list[str] = field(default_factory=list)
    """What was asked for by name, and is not there."""

    @property
    def has_problem(self) -> bool:
        """Whether anything is known to be wrong."""
        unready = any(not one.ready for one in self.objects or ())
        return unready or any(not text.endswith(_UNLESS) for text in self._problems())

    @property
    def has_doubt(self) -> bool:
        """Whether anything is wrong unless DRA, of which not all may be read, has the devices."""
        return any(text.endswith(_UNLESS) for text in self._problems())

    def _problems(self) -> list[str]:
        rows = [row for row in self.rows if row.problem]
        names = {row.node for row in rows}
        faults = [node.fault for node in self.nodes or () if node.fault and node.name in names]
        return [*self.missing, *faults, *(row.problem for row in rows)]


NOWHERE: Final = NodeFacts("", {}, {}, "", cordoned=False)
"""Stands for the node of devices that are not of one node."""


def of_nodes(nodes: Iterable[NodeFacts], pods: Iterable[Held] | None, dra: Dra) -> list[Row]:
    """Return the rows of ``nodes``; ``pods`` is None if it is unknown what they hold.

    A node keeps a resource that it does not have any more, with 0 devices. Such a row is left out
    unless a pod still holds some.
    """
    held: Counter[Place] = Counter()
    for pod in pods or ():
        held.update({(pod.node, resource): n for resource, n in pod.devices.items()})
    known = {node.name: node for node in nodes}
    status = {
        (name, resource): (total, node.healthy.get(resource, 0))
        for name, node in known.items()
        for resource, total in node.total.items()
    }
    found = count(status, None if pods is None else held, dra.slices or (), dra.claims)
    rows = (
        _row(known[node], resource, one, dra.doubt)
        for (node, resource), one in found.items()
        if node in known
    )
    return in_order(row for row in rows if row.total or row.held or row.problem)


def _row(node: NodeFacts, resource: str, found: Count, doubt: str) -> Row:
    total, healthy, held, drivers, text, profiles = found
    if not text:
        text = unhealthy(healthy, total)
        if held is not None and held > total:
            text += f"{text and '; '}{held - total} more held than there are"
        text += text and doubt
    text = "; ".join(filter(None, [node.fault, text])) if total or held or text else ""
    return Row(resource, node.name, healthy, total, held, node.cordoned, text, drivers, profiles)


def of_objects(objects: Iterable[PluginObject], resources: Collection[str]) -> list[Row]:
    """Return the rows that the operator reports, which are those of the worst nodes."""
    rows: dict[tuple[str, str], Row] = {}
    for one in (one for found in objects for one in found.problems):
        resource, node, healthy, total = (one[key] for key in _OF_PROBLEMS)
        if resource in resources:
            problem = unhealthy(healthy, total)
            rows[resource, node] = Row(resource, node, healthy, total, None, problem=problem)
    return in_order(rows.values())


def unhealthy(healthy: int, total: int) -> str:
    """Return what is wrong with the devices of a node, or an empty string."""
    if healthy >= total:
        return ""
    return f"{total - healthy} unhealthy" if healthy else "none healthy"


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (natural_key(row.resource), natural_key(row.node)))


def so_far(nodes: Iterable[NodeFacts]) -> str:
    """Return in a line what is known of device plugins when some nodes have been read."""
    healthy, total = Counter[str](), Counter[str]()
    for node in nodes:
        healthy.update(node.healthy)
        total.update(node.total)
    return _shown(", ".join(f"{healthy[one]} of {total[one]} {one} healthy" for one in total))


def sums_of_rows(rows: Iterable[Row]) -> dict[str, Sum]:
    """Return the sums of ``rows``, which are in order."""
    sums: dict[str, Sum] = {}
    for row in rows:
        one = sums.setdefault(row.resource, Sum())
        one.nodes += 1
        one.healthy += row.healthy
        one.total += row.total
        one.problems = (one.problems or 0) + bool(row.problem)
        one.held = None if one.held is None or row.held is None else one.held + row.held
        one.profiles = sum_of([one.profiles, row.profiles])
    return sums


def sums_of_objects(objects: Iterable[PluginObject]) -> dict[str, Sum]:
    """Return the sums that the operator reports. Objects of one resource are for other nodes."""
    sums: dict[str, Sum] = {}
    for found in objects:
        for one in found.resources:
            into = sums.setdefault(one["name"], Sum(held=None, problems=None))
            into.nodes += one.get("nodes", 0)
            into.healthy += one.get("healthy", 0)
            into.total += one.get("total", 0)
    return dict(sorted(sums.items(), key=lambda item: natural_key(item[0])))


def table(fleet: Fleet, rows: Iterable[Row]) -> str:
    """Return ``rows``, the sums of all of ``fleet``, and what is wrong or unknown beside these."""
    cells = [_cells(row) for row in rows]
    parts = [aligned([_HEADER, *cells])] if cells else []
    parts.append([_sum(name, one) for name, one in fleet.sums.items()] or ["no devices"])
    parts.append([f"{k}: {listed(one.profiles)}" for k, one in fleet.sums.items() if one.profiles])
    parts.append(
        [
            f"DevicePlugin {one.name}: not ready: {_shown(f'{one.reason}: {one.message}')}"
            for one in fleet.objects or ()
            if not one.ready
        ]
        + [f"missing: {text}" for text in fleet.missing]
        + [f"unknown: {_shown(text)}" for text in fleet.unknown]
    )
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    notes = [row.problem, "cordoned" if row.cordoned else ""]
    held = _NONE if row.held is None else str(row.held)
    problem = _shown("; ".join(filter(None, notes))) or _NONE
    return row.resource, row.node or _NONE, str(row.healthy), str(row.total), held, problem


def _sum(name: str, one: Sum) -> str:
    nodes = "1 node" if one.nodes == 1 else f"{one.nodes} nodes"
    held = "" if one.held is None else f", {one.held} held"
    problems = f", problems on {one.problems}" if one.problems else ""
    return f"{_shown(name)}: {one.healthy} of {one.total} healthy on {nodes}{held}{problems}"


def _shown(text: str) -> str:
    """Return ``text`` in one line that a terminal can show."""
    line = " ".join(text.split())[:_LONGEST]
    return "".join(one if one.isprintable() else "?" for one in line).rstrip(": ")


def _plain(one: Row | Sum) -> Mapping[str, Any]:
    found = asdict(one)
    return found if one.profiles else {k: value for k, value in found.items() if k != "profiles"}


def document(fleet: Fleet, rows: Iterable[Row]) -> Mapping[str, Any]:
    """Return everything, for JSON. ``null`` means unknown."""
    return _command_line.document(
        FORMAT,
        {
            "resources": [{"name": name, **_plain(one)} for name, one in fleet.sums.items()],
            "nodes": [_plain(row) for row in rows],
            "objects": None
            if fleet.objects is None
            else [{key: getattr(one, key) for key in _OF_OBJECTS} for one in fleet.objects],
            "missing": fleet.missing,
            "unknown": fleet.unknown,
        },
    )
