"""A node of a group that has none yet, from objects of the cluster or a plugin's description."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.names import DOMAIN, NAME, check_driver_name, resource_name_problem
from deviceplugin._config.quantities import devices_in, whole_number
from deviceplugin._config.slices import SHARES, has_shares, newest
from deviceplugin.errors import ConfigError

Object = Mapping[str, Any]
_EXPECTED: Final = (
    "give a node and its resourceslices of kubectl get -o yaml, or what a plugin prints with "
    "--once --output slices or json"
)
_STARTUP: Final = ("startup.deviceplugin.dev/", "startup-taint.cluster-autoscaler.kubernetes.io/")
_PASSING: Final = (
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/"),
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
    "status-taint.cluster-autoscaler.kubernetes.io/",
)
"""Beginnings of keys of taints that say how a node is now."""
_OF_ONE: Final = re.compile("uuid|serial|guid|timestamp|hostname|[^a-z]mac[^a-z]", re.IGNORECASE)
"""In the keys of labels that differ from one machine to the next."""
_EFFECT: Final = "NoSchedule|PreferNoSchedule|NoExecute"
_KEY: Final = f"({DOMAIN}/)?{NAME}"
_VALUE: Final = f"({NAME})?"


class _Part(NamedTuple):
    """A slice of a pool, which has its driver and its name."""

    place: str
    pool: tuple[str, str]
    generation: int
    size: int
    spec: Object


@dataclass
class Template:
    """What a new node has."""

    resources: Counter[str] = field(default_factory=Counter)
    """Devices that pods ask for by the name of a resource, through either protocol."""
    drivers: Counter[str] = field(default_factory=Counter)
    """Devices in slices, by driver."""
    amounts: dict[str, str] = field(default_factory=dict)
    """What is allocatable besides."""
    labels: dict[str, str] = field(default_factory=dict)
    taints: dict[tuple[str, str], str] = field(default_factory=dict)
    """Values by key and effect."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""


def template_of(placed: Iterable[tuple[str, Object]], labels: Collection[str] = ()) -> Template:
    """Return the node of these objects, with labels of devices and those of the patterns.

    ConfigError names the object that is something else, is wrong, or is of another node.
    """
    template, parts, names = Template(), list[_Part](), set[str]()
    for place, one in placed:
        with _faults_of(place):
            names |= {*filter(None, [_read(place, one, template, parts)])}
        if len(names) > 1:
            both = bounded(" and ".join(sorted(names)))
            raise ConfigError(f"{place}: two nodes, {both}: describe one")
    template.resources |= _offered(parts, template)
    domains = {name.partition("/")[0] for name in [*template.resources, *template.drivers]}
    _choose_labels(template, [*labels, *(f"{one}/*" for one in domains)], names)
    return template


@contextmanager
def _faults_of(place: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = bounded(f"{type(error).__name__}: {error}")
        raise ConfigError(f"{place}: cannot be used: {why}: {_EXPECTED}") from error


def _read(place: str, one: Object, template: Template, parts: list[_Part]) -> str:
    """Add an object, and return the name of its node; empty if it is of no node in particular."""
    kind = one.get("kind")
    if kind == "Node":
        template.resources |= Counter(devices_in(one["status"]["capacity"]))
        template.amounts = {k: str(v) for k, v in one["status"]["allocatable"].items()}
        labels = (one["metadata"].get("labels") or {}).items()
        template.labels = {
            _checked("key", _KEY, key): _checked("value", _VALUE, value) for key, value in labels
        }
        for taint in (one.get("spec") or {}).get("taints") or ():
            _read_taint(taint, template)
        return str(one["metadata"]["name"])
    if kind == "ResourceSlice":
        spec = one["spec"]
        check_driver_name(spec["driver"] or "?")
        if not spec.get("nodeName"):
            template.notes.append(f"{place} of {spec['driver']}: it is not of one node")
            return ""
        pool = spec["pool"]
        sizes = int(pool["generation"]), int(pool["resourceSliceCount"])
        parts.append(_Part(place, (spec["driver"], str(pool["name"])), *sizes, spec))
        return str(spec["nodeName"])
    if kind is not None:
        raise ValueError(f"the kind is {kind}")
    for each in one["resources"]:
        if problem := resource_name_problem(each["name"]):
            raise ValueError(f"{each['name']!r} is not the name of a resource: {problem}")
        wholes = {(one.get("part") or {}).get("of") or (one["id"],) for one in each["devices"]}
        template.resources[each["name"]] += len(wholes)
    return "this-node"


def _read_taint(taint: Object, template: Template) -> None:
    key = _checked("key", _KEY, taint["key"])
    if key.startswith(_STARTUP):
        words = "it is removed when the devices are there; start cluster-autoscaler with"
        template.notes.append(f"taint {key}: {words} --startup-taint={key}")
    elif key.startswith(_PASSING):
        template.notes.append(f"taint {key}: it says how the node is now")
    else:
        effect = _checked("effect", _EFFECT, taint["effect"])
        template.taints[key, effect] = _checked("value", _VALUE, taint.get("value") or "")


def _checked(what: str, pattern: str, text: object) -> str:
    if not isinstance(text, str) or not re.fullmatch(pattern, text):
        raise ValueError(f"{text!r} is not the {what} of a label or taint")
    return text


def _complete(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Yield the slices of the latest generation of each pool; ConfigError if some are missing."""
    for found, is_complete in newest(parts):
        if not is_complete:
            one = found[0]
            what = f"pool {bounded(one.pool[1])!r} has {len(found)} of its {one.size} slices"
            raise ConfigError(f"{one.place}: {what}: try again when all are there")
        yield from found


def _offered(parts: Iterable[_Part], template: Template) -> Counter[str]:
    """Return what slices offer by the name of a resource, and count their devices by driver.

    What shares a set of counters is one device, whatever parts can be made of it.
    """
    offered, seen = Counter[str](), set[tuple[str, ...]]()
    for part in _complete(parts):
        with _faults_of(part.place):
            for device in part.spec.get("devices") or ():
                sets = [str(one["counterSet"]) for one in device.get("consumesCounters") or ()]
                same = (*part.pool, min(sets, default=""))
                if sets and same in seen:
                    continue
                seen.add(same)
                template.drivers[part.pool[0]] += 1
                offered += _shares_of(device)
    if divided := sum(bool(counters) for *_, counters in seen):
        why = "because no form has words for them: each of these devices counts once"
        template.notes.append(f"parts that can be made of devices, {why} ({divided})")
    return offered


def _shares_of(device: Object) -> Counter[str]:
    """Return how many pods can get a device by the name of its resource: 0 of other vendors."""
    resource = ((device.get("attributes") or {}).get("resource") or {}).get("string")
    amounts = device.get("capacity") or {}
    shares = amounts.get(SHARES) if has_shares(device) else {"value": 1}
    if not shares or not isinstance(resource, str) or resource_name_problem(resource):
        return Counter()
    return Counter({resource: whole_number(str(shares["value"]))})


def _choose_labels(template: Template, patterns: Collection[str], names: Collection[str]) -> None:
    given, template.labels = template.labels, {}
    for key, value in sorted(given.items()):
        if not any(fnmatchcase(key, pattern) for pattern in patterns):
            continue
        if value in names or _OF_ONE.search(key):
            template.notes.append(f"label {key}: it differs from node to node")
        else:
            template.labels[key] = value
    if others := len(given) - len(template.labels):
        template.notes.append(f"{others} labels in all; --label PATTERN adds some")
