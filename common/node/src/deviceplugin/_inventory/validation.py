"""What the kubelet and container runtimes accept: names, ids and paths. Also the order of lists."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from deviceplugin.kit import files
from deviceplugin.kit.sysfs import natural
from deviceplugin.model import Allocation, Device, DeviceNode, Health, Mount, Topology
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin.topology import NUMA_NODES

if TYPE_CHECKING:
    from deviceplugin.model import Counters, Part

MAX_ID_LENGTH: Final = 63
MAX_COUNTERS: Final = 32
"""Counters of one piece of hardware, and groups of a part: what slices can say."""
MAX_IDENTITY: Final = 253
_ENV_NAME: Final = re.compile(r"[^=\0]+")
_PERMISSIONS: Final = re.compile(r"(?!.*(.).*\1)[rwm]+")
_CDI_KIND: Final = r"[A-Za-z]([-\w.]*[A-Za-z0-9])?"
_CDI_DEVICE: Final = r"[A-Za-z0-9]([-\w.:]*[A-Za-z0-9])?"
_CDI_NAME: Final = re.compile(f"{_CDI_KIND}/{_CDI_KIND}={_CDI_DEVICE}", re.ASCII)
_QUANTITY: Final = re.compile(
    r"[0-9]{1,18}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?", re.ASCII
)
_INT64: Final = range(-(2**63), 2**63)
_AMOUNTS: Final = range(2**63)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+>")
_MAX_SHOWN: Final = 200

natural_key: Final = natural
"""A sort key that puts ``gpu2`` before ``gpu10``. Different strings never tie."""


def socket_name_problem(name: object) -> str:
    """Return what is wrong with ``name`` as a plugin's ``socket_name``, or an empty string."""
    if not isinstance(name, str):
        return "it must be a string"
    if "/" in name:
        return "it must be the name of a file, without a slash"
    if not name.isprintable():
        return "it must consist of printable characters"
    if f"{name}.sock" == KUBELET_SOCKET:
        return f"{KUBELET_SOCKET} is the kubelet's own socket"
    return ""


def device_problem(device: object) -> str:
    """Return why ``device`` cannot be advertised, or an empty string."""
    if not isinstance(device, Device):
        return f"discover() must return Device objects, not {type(device).__name__}"
    if problem := _id_problem(device.id):
        return f"id {_shortened(device.id)!r} {problem}"
    try:
        problem = next(_problems(device), "")
    except Exception as error:  # the plugin's own class, whose fields may do anything
        problem = f"{type(error).__name__}: {error}"
    return problem and f"device {device.id}: {problem}"


def _problems(device: Device) -> Iterator[str]:
    # The first, because the other checks rely on it.
    for what in ("envs", "annotations", "attributes", "capacity"):
        if type(given := getattr(device, what)) is not MappingProxyType:
            # The value is not shown, because it can contain secrets.
            yield f"{what} is of type {type(given).__name__}, not a mapping"
    yield from _kind_problems((*_description(device), *_recipe(device)))
    yield from _device_problems(device)


def shown(value: object) -> str:
    """Return ``value`` for a message: short, and without addresses, which make a message new."""
    try:
        text = repr(value)
    except Exception:  # the plugin's own class
        return f"<{type(value).__name__}>"
    text = _ADDRESS.sub(">", text)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def allocation_problem(allocation: Allocation) -> str:
    """Return why no container can get ``allocation``, or an empty string."""
    kinds = _kind_problems(_recipe(allocation))
    return next(itertools.chain(kinds, _recipe_problems(allocation)), "")


_Kinds = tuple[tuple[str, type | tuple[type, ...], Iterable[object]], ...]
"""The name of a field for messages, its declared types, and its values."""


def _recipe(of: Device | Allocation) -> _Kinds:
    return (
        ("node", DeviceNode, of.nodes),
        ("mount", Mount, of.mounts),
        ("environment variable", str, of.envs),
        ("environment variable's value", str, of.envs.values()),
        ("annotation", str, of.annotations),
        ("annotation's value", str, of.annotations.values()),
        ("CDI name", str, of.cdi_names),
    )


def _description(device: Device) -> _Kinds:
    return (
        ("resource", str, (device.resource,)),
        ("share_of", str, (device.share_of,)),
        ("piece of hardware", str, device.hardware),
        ("health", Health, (device.health,)),
        ("topology", Topology, () if device.topology is None else (device.topology,)),
        *_part_kind(device.part),
        ("attribute", str, device.attributes),
        ("attribute's value", (str, int), device.attributes.values()),
        ("capacity", str, device.capacity),
        ("capacity's value", (str, int), device.capacity.values()),
    )


def _part_kind(part: "Part | None") -> _Kinds:
    if part is None:
        return ()
    from deviceplugin.model import Part  # few devices are one

    return (("part", Part, (part,)),)


def _kind_problems(kinds: _Kinds) -> Iterator[str]:
    """Yield values that are not of their declared type: authors may not use a type checker."""
    for what, kind, values in kinds:
        for value in values:
            if not isinstance(value, kind):
                known = kind if isinstance(kind, tuple) else (kind,)
                yield f"{what} {shown(value)} is not a {' or '.join(k.__name__ for k in known)}"
            elif isinstance(value, str) and not value.isascii() and not _is_unicode(value):
                yield f"{what} {value!r} is not valid Unicode"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _device_problems(device: Device) -> Iterator[str]:
    healthy: object = device.health.healthy
    if not isinstance(healthy, bool):
        yield f"health's healthy {shown(healthy)} is not a bool"
    if device.share_of and (problem := _id_problem(device.share_of)):
        yield f"share_of {_shortened(device.share_of)!r} {problem}"
    if device.part is not None:
        yield from _part_problems(device.part, device.share_of)
    yield from _recipe_problems(device)
    nodes: Iterable[object] = device.topology.numa_nodes if device.topology else ()
    wrong = (one for one in nodes if type(one) is not int or one not in NUMA_NODES)
    yield from (f"NUMA node {shown(one)} is not the number of a node" for one in wrong)
    for name, value in device.attributes.items():
        if isinstance(value, int) and value not in _INT64:
            yield f"attribute {name!r} {shown(value)} has more than 64 bits"
    for name, amount in device.capacity.items():
        if not _is_quantity(amount):
            yield f"capacity {name!r} {shown(amount)} is not a quantity, such as 4 or 80Gi"


def _part_problems(part: "Part", share_of: str) -> Iterator[str]:
    from deviceplugin.model import Counters

    if share_of:
        yield "a share cannot be a part: its counters would be counted for each share"
    if isinstance(part.of, Counters):
        yield from _consumption_problems(part, part.of)
    else:
        yield f"part of {shown(part.of)}, which is not Counters"
    for name in (one for one in part.groups if _id_problem(one)):
        yield f"part: group {shown(name)} {_id_problem(name)}"
    if len(part.groups) > MAX_COUNTERS:
        yield f"part: it has {len(part.groups)} groups, of at most {MAX_COUNTERS}"
    if problem := identity_problem(part.identity) if part.identity != "" else "":
        yield f"part: identity {_shortened(part.identity)!r} {problem}"
    if not isinstance(demand := part.on_demand, bool):
        yield f"part: on_demand {shown(demand)} is not a bool"


def _consumption_problems(part: "Part", of: "Counters") -> Iterator[str]:
    if problem := _id_problem(of.name):
        yield f"part: the name of counters {_shortened(of.name)!r} {problem}"
    yield from _amount_problems(f"counters {of.name!r}", of.amounts)
    yield from _amount_problems("what it consumes", part.consumes, of.amounts)


def _amount_problems(
    what: str, amounts: Mapping[str, int], known: Mapping[str, int] | None = None
) -> Iterator[str]:
    is_mapping = type(amounts) is MappingProxyType
    if not is_mapping:
        yield f"part: {what} is of type {type(amounts).__name__}, not a mapping"
    elif not 0 < len(amounts) <= MAX_COUNTERS:
        yield f"part: {what} has {len(amounts)} counters, of 1 to {MAX_COUNTERS}"
    for name, amount in amounts.items() if is_mapping else ():
        if problem := _id_problem(name):
            yield f"part: {what}: counter {shown(name)} {problem}"
        if type(amount) is not int or amount not in _AMOUNTS:
            yield f"part: {what}: {name} is {shown(amount)}, not a whole number from 0"
        if known is not None and name not in known:
            yield f"part: {what}: {name} is none of its counters: {', '.join(known)}"


def identity_problem(identity: object) -> str:
    """Return what is wrong with the identity of a part that was made, or an empty string."""
    if not isinstance(identity, str) or not identity:
        return "must be a string that is not empty"
    if len(identity) > MAX_IDENTITY:
        return f"has {len(identity)} characters, of at most {MAX_IDENTITY}"
    return "" if identity.isprintable() else "has control characters or unreadable bytes"


def _recipe_problems(of: Device | Allocation) -> Iterator[str]:
    for node in of.nodes:
        yield from _path_problems("device node", node)
        given: object = node.permissions
        if not isinstance(given, str) or not _PERMISSIONS.fullmatch(given):
            yield f"device node {node.host_path}: permissions {shown(given)} are not r, w and m"
    for mount in of.mounts:
        yield from _path_problems("mount", mount)
        given = mount.read_only
        if not isinstance(given, int):  # a bool, or 0 or 1
            yield f"mount {mount.host_path}: read_only {shown(given)} is not a bool"
    yield from _name_problems(of)
    for name in of.cdi_names:
        if not _CDI_NAME.fullmatch(name):
            yield f"CDI name {name!r} is not of the form vendor.com/class=name"


def _name_problems(of: Device | Allocation) -> Iterator[str]:
    for name, value in of.envs.items():
        if not _ENV_NAME.fullmatch(name):
            yield f"environment variable {name!r} is not a variable name"
        if "\0" in value:
            yield f"environment variable {name!r} has a NUL character in its value"
    if "" in of.annotations:
        yield "an annotation has an empty key"
    for key, value in of.annotations.items():
        if "\0" in f"{key}{value}":
            what = "key" if "\0" in key else "value"
            yield f"annotation {key!r} has a NUL character in its {what}"


def _is_quantity(amount: int | str) -> bool:
    if isinstance(amount, str):
        return bool(_QUANTITY.fullmatch(amount))
    return not isinstance(amount, bool) and amount in _AMOUNTS


def _id_problem(device_id: object) -> str:
    if not isinstance(device_id, str) or not device_id:
        return "must be a string that is not empty"
    if len(device_id) > MAX_ID_LENGTH:
        return f"has {len(device_id)} characters, of at most {MAX_ID_LENGTH}"
    if not device_id.isprintable() or device_id.strip() != device_id:
        return "has control characters, unreadable bytes or blanks at an end"
    return ""


def _shortened(text: object) -> object:
    return f"{text[:MAX_ID_LENGTH]}..." if isinstance(text, str) and len(text) > 80 else text  # noqa: PLR2004


def _path_problems(what: str, paths: DeviceNode | Mount) -> Iterator[str]:
    for path in (paths.host_path, paths.container_path):
        if problem := files.path_problem(path):
            yield f"{what} path {path!r} {problem}"
        elif "\0" in path:
            yield f"{what} path {path!r} has a NUL character"
        elif not _is_unicode(path):
            yield f"{what} path {path!r} is not valid Unicode"
