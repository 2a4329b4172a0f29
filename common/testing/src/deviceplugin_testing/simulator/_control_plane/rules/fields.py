"""Reading an object by the fields that the server knows: others vanish, and types are checked.

The fields are those of the messages in the binary format, which has those that Kubernetes 1.36
keeps by default.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from deviceplugin.proto.objects import resource_objects_pb2 as pb
from deviceplugin_testing.simulator._control_plane.kinds import (
    RESOURCE,
    RESOURCE_SLICE,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._control_plane.quantities import canonical
from deviceplugin_testing.simulator._control_plane.refusals import unhandled

_ALWAYS: Final[Mapping[str, Object]] = {
    "ResourceSlice": {"metadata": {}, "spec": {}},
    "ResourceClaim": {"metadata": {}, "spec": {}, "status": {}},
    "ResourceClaimTemplate": {"metadata": {}, "spec": {}},
    "DeviceClass": {"metadata": {}, "spec": {}},
    "OwnerReference": {"apiVersion": "", "kind": "", "name": "", "uid": ""},
    "ResourceSliceSpec": {"driver": "", "pool": {}},
    "ResourcePool": {"name": "", "generation": 0, "resourceSliceCount": 0},
    "Device": {"name": ""},
    "DeviceCapacity": {"value": "0"},
    "CapacityRequestPolicy": {"default": None},
    "DeviceTaint": {"key": "", "effect": ""},
    "Counter": {"value": "0"},
    "CounterSet": {"name": ""},
    "DeviceCounterConsumption": {"counterSet": ""},
    "ResourceClaimSpec": {"devices": {}},
    "ResourceClaimTemplateSpec": {"metadata": {}, "spec": {}},
    "DeviceRequest": {"name": ""},
    "ExactDeviceRequest": {"deviceClassName": ""},
    "DeviceSubRequest": {"name": "", "deviceClassName": ""},
    "CELDeviceSelector": {"expression": ""},
    "DeviceToleration": {"operator": "Equal"},
    "OpaqueDeviceConfiguration": {"driver": ""},
    "AllocatedDeviceStatus": {"driver": "", "pool": "", "device": "", "conditions": None},
    "Condition": {
        "type": "",
        "status": "",
        "lastTransitionTime": None,
        "reason": "",
        "message": "",
    },
}
"""Fields that are there even if nobody sets them, and their values then."""
_KEPT: Final = frozenset({"Allocation", "Json", "NodeSelector"})
"""Messages that are kept as they are."""
_WITH_EMPTY: Final = (pb.DeviceAttribute.DESCRIPTOR, pb.ResourceSliceSpec.DESCRIPTOR)
"""The messages in which an empty list is a value until they are checked."""
_SCALARS: Final[Mapping[int, tuple[str, type]]] = {
    FieldDescriptor.CPPTYPE_STRING: ("string", str),
    FieldDescriptor.CPPTYPE_INT64: ("int64", int),
    FieldDescriptor.CPPTYPE_BOOL: ("bool", bool),
}
_NAMES: Final = {str: "string", bool: "bool", list: "array", dict: "object"}
_INT64: Final = 2**63
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"


def known_fields(kind: Kind, made: Object) -> Object:
    """Return what the server keeps of ``made``, written as the server writes it.

    Of kinds that are not DRA's, only the metadata are read.

    Raises:
        RefusedError: A value is not of its field's type.
    """
    own = {"apiVersion": kind.api_version, "kind": kind.name}
    try:
        return {**_read(kind, made), **own}
    except ValueError as error:
        raise unhandled(kind, str(error)) from error


def _read(kind: Kind, made: Object) -> Object:
    if kind.group == RESOURCE:
        message = pb.DESCRIPTOR.message_types_by_name[kind.name]
        return _message(message, made, "")
    metadata = made.get("metadata") or {}
    return {**made, "metadata": _message(pb.ObjectMeta.DESCRIPTOR, metadata, "ObjectMeta metadata")}


def drop_empty(kind: Kind, made: Object) -> None:
    """Remove the empty lists of an object that was checked."""
    for name in ("devices", "sharedCounters") if kind == RESOURCE_SLICE else ():
        if made["spec"].get(name) == []:
            del made["spec"][name]


def _message(message: Any, given: Any, place: str) -> Object:
    """Return the known fields of ``given`` at ``place``, which is "TYPE PATH"."""
    if not isinstance(given, dict):
        raise _mismatch(given, place, f"v1.{message.name}")
    found: Object = {}
    always = _ALWAYS.get(message.name, {})
    path = place.partition(" ")[2]
    for field in _fields(message):
        name = field.json_name
        value = given.get(name)
        value = always.get(name) if value is None else value
        if value is None:
            found |= {name: None} if name in always else {}
            continue
        read = _field(field, value, f"{message.name} {path}.{name}".replace(" .", " "))
        if read not in ([], {}) or not field.is_repeated or message in _WITH_EMPTY:
            found[name] = read
    return found


def _fields(message: Descriptor) -> Iterator[FieldDescriptor]:
    for field in message.fields:
        if field.message_type is pb.Configuration.DESCRIPTOR:  # in JSON it has no level of its own
            yield from field.message_type.fields
        else:
            yield field


def _field(field: FieldDescriptor, given: Any, place: str) -> Any:
    if not field.is_repeated:
        return _value(field, given, place)
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        if not isinstance(given, list):
            raise _mismatch(given, place, f"[]{_go(field)}")
        return [_value(field, one, place) for one in given]
    value = field.message_type.fields_by_name["value"]
    if not isinstance(given, dict):
        has_names = _go(value) not in {"string", "v1.Counter"}
        key = "v1.QualifiedName" if has_names else "string"
        raise _mismatch(given, place, f"map[{key}]{_go(value)}")
    return {name: _value(value, one, place) for name, one in given.items()}


def _go(field: FieldDescriptor) -> str:
    """Return the name of its type in the server's messages."""
    if field.message_type is None:
        return _SCALARS[field.cpp_type][0]
    package = "resource" if field.message_type is pb.Quantity.DESCRIPTOR else "v1"
    return f"{package}.{field.message_type.name}"


def _value(field: FieldDescriptor, given: Any, place: str) -> Any:
    message = field.message_type
    if message is None:
        go, python = _SCALARS[field.cpp_type]
        is_of_type: bool = type(given) is python
        if not is_of_type or (python is int and not -_INT64 <= given < _INT64):
            raise _mismatch(given, place, go)
        return given
    if message is pb.Quantity.DESCRIPTOR:
        return canonical(given)
    if message is pb.Time.DESCRIPTOR:
        return _time(str(given))
    if message.name in _KEPT:
        return given
    return _message(message, {} if given is None else given, place)


def _time(text: str) -> str:
    if _TIME.fullmatch(text) is None:
        raise ValueError(f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{text}" as "2006"')
    return text


def _mismatch(value: Any, place: str, go: str) -> ValueError:
    shown = _NAMES.get(type(value), "number")
    if go == "int64" and type(value) in {int, float}:
        shown = f"number {value}"
    owner, _, path = place.partition(" ")
    problem = f"json: cannot unmarshal {shown} into Go struct field {owner}.{path} of type {go}"
    return ValueError(problem)
