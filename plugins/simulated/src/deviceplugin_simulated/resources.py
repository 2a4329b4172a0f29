"""Resources as a file tells of them."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import deviceplugin as dp
from deviceplugin_simulated import reading
from deviceplugin_simulated.machine import (
    MAX_COUNT,
    PLACEHOLDERS,
    Pattern,
    annotation_problem,
    id_problem,
)
from deviceplugin_simulated.reading import Reader

_T = TypeVar("_T")

_KEYS: Final = (
    "count", "id", "numa", "nodes", "mounts", "envs", "annotations", "cdi-names", "attributes",
)  # fmt: skip
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-.\w]{0,61}[A-Za-z0-9])?")
_CDI: Final = re.compile(r"[A-Za-z][-.\w]*/[A-Za-z][-\w]*=[A-Za-z0-9][-.:\w]*", re.ASCII)
_PERMISSIONS: Final = re.compile(r"(?!.*(.).*\1)[rwm]+")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


def read_resources(reader: Reader, node: str) -> list[dp.Device]:
    """Return the devices of all resources of ``reader``, on the node called ``node``."""
    devices: list[dp.Device] = []
    for name, given in reader.each():
        inner = Reader(given, f"{reader.where}.{name}", reader.problems, _KEYS)
        if not _NAME.fullmatch(name):
            inner.wrong("", "is no name of a resource, such as example.com/gpu")
        devices += _check(inner, list(_pattern(inner, name, node).devices()))
    _check_unique(reader, devices)
    return devices


def _pattern(reader: Reader, resource: str, node: str) -> Pattern:
    return Pattern(
        resource=resource,
        count=reader.take("count", reading.whole(0, MAX_COUNT), 1),
        id=reader.take(
            "id",
            _template(reading.text, "index", "node"),
            f"{resource.rpartition('/')[2]}-{{index}}",
        ),
        node=node,
        numa=reader.take("numa", reading.numa_nodes, []),
        nodes=list(_nodes(reader)),
        mounts=list(_mounts(reader)),
        envs=reader.take("envs", _template(reading.text_mapping), {}),
        annotations=reader.take("annotations", _template(reading.text_mapping), {}),
        cdi_names=reader.take("cdi-names", _template(reading.texts), []),
        attributes=reader.take("attributes", _template(reading.text_mapping), {}),
    )


def _template(convert: Callable[[Any], _T], *known: str) -> Callable[[Any], _T]:
    """Return ``convert`` made to refuse placeholders that nothing stands in for."""
    names = known or PLACEHOLDERS

    def converted(value: Any) -> _T:
        for name in _PLACEHOLDER.findall(str(value)):
            if name not in names:
                raise ValueError(f"has {{{name}}}: {reading.nearest(name, names)}")
        return convert(value)

    return converted


def _path(value: Any) -> str:
    path = _template(reading.text)(value)
    if not path.startswith("/"):
        raise ValueError("is not an absolute path")
    return path


def _permissions(value: Any) -> str:
    if not _PERMISSIONS.fullmatch(text := reading.text(value)):
        raise ValueError("are not r, w and m")
    return text


def _nodes(reader: Reader) -> Iterator[dp.DeviceNode]:
    for inner in _paths(reader, "nodes", "permissions"):
        host = inner.take("host", _path, "/")
        container = inner.take("container", _path, host)
        yield dp.DeviceNode(host, container, inner.take("permissions", _permissions, "rw"))


def _mounts(reader: Reader) -> Iterator[dp.Mount]:
    for inner in _paths(reader, "mounts", "read-only"):
        host = inner.take("host", _path, "/")
        container = inner.take("container", _path, host)
        yield dp.Mount(host, container, inner.take("read-only", reading.truth, default=False))


def _paths(reader: Reader, key: str, option: str) -> Iterator[Reader]:
    """Yield a reader for each item of a list of paths or of mappings with the key ``host``."""
    for where, item in reader.each(key):
        given = {"host": item} if isinstance(item, str) else item
        inner = Reader(given, where, reader.problems, ("host", "container", option))
        if isinstance(given, Mapping) and "host" not in inner:
            inner.wrong("host", "is needed")
        yield inner


def _check(reader: Reader, devices: Sequence[dp.Device]) -> Sequence[dp.Device]:
    """Return ``devices``, and remember the first thing that is wrong with them."""
    for problem in itertools.islice(_problems(devices), 1):
        reader.wrong("", problem)
    return devices


def _problems(devices: Sequence[dp.Device]) -> Iterator[str]:
    for device in devices:
        if problem := id_problem(device.id):
            yield f"id {device.id!r} {problem}"
        yield from (f"device {device.id}: {problem}" for problem in _name_problems(device))


def _name_problems(device: dp.Device) -> Iterator[str]:
    for name in device.envs:
        if not name or "=" in name or "\0" in name:
            yield f"{name!r} is no name of a variable"
    for name in device.annotations:
        if problem := annotation_problem(name):
            yield f"annotation {name!r} {problem}"
    for name in device.cdi_names:
        if not _CDI.fullmatch(name):
            yield f"{name!r} is no CDI name, such as example.com/gpu=0"


def _check_unique(reader: Reader, devices: Sequence[dp.Device]) -> None:
    owners: dict[str, str] = {}
    for device in devices:
        owner = owners.setdefault(device.id, device.resource)
        if owner != device.resource:
            reader.wrong(device.resource, f"id {device.id!r} belongs to {owner} too")
            return
    doubles = len(devices) - len(owners)
    if doubles:
        reader.wrong("", f"{doubles} ids are not unique: put {{index}} into them")
