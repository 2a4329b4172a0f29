"""A node of a group that has none yet, from objects of the cluster or a plugin's description."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.names import NAME, check_driver_name, check_resource_name
from deviceplugin._config.quantities import devices_in, whole_number
from deviceplugin._dra.naming import SHARES
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
_Pools = dict[tuple[str, str], list[tuple[str, Object]]]
"""Slices with their places, by driver and pool."""


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
    template, pools, names = Template(), _Pools(), set[str]()
    for place, one in placed:
        with _faults_of(place):
            names.add(_read(place, one, template, pools))
        if len(names) > 1:
            both = bounded(" and ".join(sorted(names)))
            raise ConfigError(f"{place}: two nodes, {both}: describe one")
    offered: Counter[str] = Counter()
    for place, spec in _complete(pools):
        with _faults_of(place):
            for device in spec.get("devices") or ():
                template.drivers[spec["driver"]] += 1
                offered += _shares_of(device)
    template.resources |= offered
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


def _read(place: str, one: Object, template: Template, pools: _Pools) -> str:
    """Add an object, and return the name of its node."""
    kind = one.get("kind")
    if kind == "Node":
        template.resources |= Counter(devices_in(one["status"]["capacity"]))
        template.amounts = {k: str(v) for k, v in one["status"]["allocatable"].items()}
        labels = (one["metadata"].get("labels") or {}).items()
        template.labels = {str(key): _value(value) for key, value in labels}
        for taint in (one.get("spec") or {}).get("taints") or ():
            _read_taint(taint, template)
        return str(one["metadata"]["name"])
    if kind == "ResourceSlice":
        spec = one["spec"]
        check_driver_name(spec["driver"] or "?")
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append((place, spec))
        return str(spec["nodeName"])
    if kind is not None:
        raise ValueError(f"the kind is {kind}")
    for each in one["resources"]:
        check_resource_name(each["name"])
        template.resources[each["name"]] += len(each["devices"])
    return "this-node"


def _read_taint(taint: Object, template: Template) -> None:
    key = taint["key"]
    if key.startswith(_STARTUP):
        words = "it is removed when the devices are there; start cluster-autoscaler with"
        template.notes.append(f"taint {key}: {words} --startup-taint={key}")
    elif key.startswith(_PASSING):
        template.notes.append(f"taint {key}: it says how the node is now")
    else:
        template.taints[key, taint["effect"]] = _value(taint.get("value") or "")


def _value(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(f"({NAME})?", value):
        raise ValueError(f"{value!r} is not the value of a label or taint")
    return value


def _complete(pools: _Pools) -> Iterator[tuple[str, Object]]:
    """Yield the slices of the latest generation of each pool; ConfigError if some are missing."""
    for slices in pools.values():
        with _faults_of(slices[0][0]):
            last = max(int(spec["pool"]["generation"]) for _, spec in slices)
            found = [one for one in slices if int(one[1]["pool"]["generation"]) == last]
            place, spec = found[0]
            name, count = (
                bounded(str(spec["pool"]["name"])),
                int(spec["pool"]["resourceSliceCount"]),
            )
        if len(found) != count:
            what = f"{place}: pool {name!r} has {len(found)} of its {count} slices"
            raise ConfigError(f"{what}: try again when all are there")
        yield from found


def _shares_of(device: Object) -> Counter[str]:
    """Return how many pods can get a device by the name of its resource."""
    resource = ((device.get("attributes") or {}).get("resource") or {}).get("string")
    if not resource:  # another vendor's driver
        return Counter()
    check_resource_name(resource)
    shared = device.get("allowMultipleAllocations")
    shares = whole_number(str(device["capacity"][SHARES]["value"])) if shared else 1
    return Counter({resource: shares})


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
