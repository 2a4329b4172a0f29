"""What slices say about a device, as the API server takes it, and the classes that select by it."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.slices import PART, SHARES
from deviceplugin._dra.naming import attribute_names, counted, label, shortened, uncounted
from deviceplugin.model import Attribute, Device, Version
from deviceplugin.topology import SYSFS, near_numa_nodes

MAX_DESCRIPTIONS: Final = 32
"""Most attributes and capacities of a device, together."""
MAX_VALUES: Final = 48
"""Most values of the attributes of a device, together."""
_TOO_MANY: Final = f"a device has at most {MAX_DESCRIPTIONS} attributes and capacities in slices"
_MAX_BYTES: Final = 64
"""Longest string or version."""
_STANDARD: Final = "resource.kubernetes.io"
NUMA_NODE: Final = f"{_STANDARD}/numaNode"
PCI_BUS_ID: Final = f"{_STANDARD}/pciBusID"
PCIE_ROOT: Final = f"{_STANDARD}/pcieRoot"
LISTS: Final = frozenset(("ints", "strings", "bools", "versions"))
"""Fields of an attribute that has a list."""
_OURS: Final = ("id", "resource", "numaNode")
_ADDRESS: Final = re.compile(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_VERSION: Final = re.compile(
    r"v?([0-9]{1,19})(?:\.([0-9]{1,19}))?(?:\.([0-9]{1,19}))?"
    r"((?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?)"
)
_NO_NUMBER: Final = re.compile(r"[-.](?:0[0-9]+|[0-9]{20,})(?=[.+]|\Z)")
"""In a pre-release. A number of over 64 bits ends the scheduler's work on every claim."""

Described = dict[str, Any]
"""What slices say about a device, as JSON: its attributes, its capacity, and if it is shared."""


@dataclass(frozen=True)
class Describer:
    """Describes devices of ``driver``; ``sysfs`` is where PCI devices and NUMA nodes are looked up.

    With ``lists``, attributes can have several values.
    """

    driver: str
    sysfs: Path = SYSFS
    lists: bool = False

    def describe(
        self, device: Device, resource: str, shares: int = 0
    ) -> tuple[Described, list[str]]:
        """Return what slices say about ``device`` with its ``shares``, and what had to be cut."""
        cuts: list[str] = []
        names = attribute_names(device.attributes, self.driver, _OURS)
        amounts = attribute_names(device.capacity, self.driver, [SHARES] if shares else ())
        most = MAX_DESCRIPTIONS - bool(shares)
        attributes = dict(self._ours(device, resource, cuts))
        for key in sorted(device.attributes, key=lambda key: names[key] not in attributes):
            if names[key] in attributes or len(attributes) + len(amounts) < most:
                attributes[names[key]] = _value(key, device.attributes[key], cuts)
            else:
                cuts.append(f"{key}: {_TOO_MANY}")
        cuts += _shorten_lists(attributes)
        room = most - len(attributes)
        cuts += [f"{key}: {_TOO_MANY}" for key in list(amounts)[room:]]
        kept = list(amounts)[:room]
        capacity: dict[str, Any] = {
            amounts[key]: {"value": str(device.capacity[key])} for key in kept
        }
        found: Described = {"attributes": attributes}
        if shares:
            others = {key: uncounted(amount) for key, amount in capacity.items()}
            found["allowMultipleAllocations"] = True
            capacity = {SHARES: counted(shares), **others}
        return (found | {"capacity": capacity} if capacity else found), cuts

    def _ours(
        self, device: Device, resource: str, cuts: list[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        yield "id", _string("id", device.id, cuts)
        # Classes select by it, so that of two long names none may look like the other.
        on_demand = device.part is not None and device.part.on_demand
        name = f"{resource}{PART}" if on_demand else resource
        yield "resource", {"string": shortened(name, _MAX_BYTES)}
        numa = device.topology.numa_nodes if device.topology else ()
        if len(numa) == 1:
            yield "numaNode", {"int": numa[0]}
            near = near_numa_nodes(numa[0], sysfs=self.sysfs)
            yield NUMA_NODE, {"ints": list(near)} if self.lists else {"int": numa[0]}
        elif numa and self.lists:
            yield NUMA_NODE, {"ints": list(numa)}
        yield from self._pci(str(device.attributes.get("pci", "")).lower().split(","))

    def _pci(self, addresses: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        found = [one[1] for one in map(_ADDRESS.fullmatch, addresses) if one]
        if len(found) < len(addresses):
            return
        if len(found) == 1:
            yield PCI_BUS_ID, {"string": found[0]}
        roots = [*dict.fromkeys(pcie_root(one, self.sysfs) for one in found)]
        if all(roots) and len(roots) == 1:
            yield PCIE_ROOT, {"string": roots[0]}
        elif all(roots) and self.lists:
            yield PCIE_ROOT, {"strings": roots}


def pcie_root(address: str, sysfs: Path) -> str:
    """Return the root complex that the PCI device at ``address`` is behind, such as pci0000:00."""
    try:
        path = (sysfs / "bus" / "pci" / "devices" / address).resolve(strict=True)
    except (OSError, RuntimeError):
        return ""
    return next((part for part in path.parts if _ROOT.fullmatch(part)), "")


def semantic(version: str) -> str:
    """Return ``version`` as semver.org writes it, or an empty string if it is none."""
    found = _VERSION.fullmatch(version)
    if found is None or _NO_NUMBER.search(found[4].partition("+")[0]):
        return ""
    return ".".join((number or "").lstrip("0") or "0" for number in found.groups()[:3]) + found[4]


def _value(name: str, value: Attribute, cuts: list[str]) -> Mapping[str, Any]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": int(value)}
    if isinstance(value, Version):
        written = semantic(value)
        if written and len(written) <= _MAX_BYTES:
            return {"version": written}
        cuts.append(f"{name}: {str(value)!r} is not a semantic version, and is a string in slices")
    return _string(name, value, cuts)


def _shorten_lists(attributes: dict[str, Mapping[str, Any]]) -> Iterator[str]:
    """Shorten lists so that ``attributes`` have not too many values, and yield what was cut."""
    spare = MAX_VALUES - len(attributes)
    for name, value in attributes.items():
        ((kind, values),) = value.items()
        if kind in LISTS:
            kept = values[: spare + 1]
            spare -= len(kept) - 1
            attributes[name] = {kind: kept}
            if len(kept) < len(values):
                yield f"{name}: a device has at most {MAX_VALUES} values of attributes in slices"


def lists_in(body: Mapping[str, Any]) -> list[str]:
    """Return the names of the attributes of a device in a slice that are lists."""
    return [name for name, one in body.get("attributes", {}).items() if LISTS & one.keys()]


def _string(name: str, value: str, cuts: list[str]) -> Mapping[str, Any]:
    text = value.encode()[:_MAX_BYTES].decode(errors="ignore")
    if text != value:
        cuts.append(f"{name}: is longer than {_MAX_BYTES} bytes")
    return {"string": text}


def device_classes(driver: str, resources: Collection[str]) -> list[dict[str, Any]]:
    """Return a class for each of ``resources``, called as the driver is if it is the only one."""
    uses = Counter(one.partition("/")[2] for one in resources)
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {
                "name": driver if len(resources) == 1 else f"{_label(one, uses)}.{driver}",
                "labels": {"app.kubernetes.io/part-of": "device-plugins"},
            },
            "spec": {
                "extendedResourceName": one,
                "selectors": [{"cel": {"expression": _expression(driver, one)}}],
            },
        }
        for one in sorted(resources)
    ]


def _label(resource: str, uses: Mapping[str, int]) -> str:
    name = resource.partition("/")[2]
    return label(name if uses[name] == 1 else resource)


def _expression(driver: str, resource: str) -> str:
    which = f'device.attributes["{driver}"].resource == "{resource}"'
    return f'device.driver == "{driver}" && {which}'
