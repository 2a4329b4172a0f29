"""Reading the body of a request."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from deviceplugin.proto.objects import resource_objects_pb2 as pb
from deviceplugin_testing.simulator._control_plane.kinds import (
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._control_plane.refusals import (
    RefusedError,
    bad_request,
    unhandled,
)

MEDIA: Final = "application/vnd.kubernetes.protobuf"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAGIC: Final = b"k8s\0"
_MESSAGES: Final[Mapping[str, type[Message]]] = {
    RESOURCE_SLICE.name: pb.ResourceSlice,
    RESOURCE_CLAIM.name: pb.ResourceClaim,
    RESOURCE_CLAIM_TEMPLATE.name: pb.ResourceClaimTemplate,
    DEVICE_CLASS.name: pb.DeviceClass,
    "DeleteOptions": pb.DeleteOptions,
}


class UnknownKindError(Exception):
    """The simulated server does not read objects of this kind in the binary format."""


def read(body: bytes) -> Object:
    """Return what is in ``body`` as JSON has it; raise ``ValueError``, ``UnknownKindError``."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin as the binary format does")
    try:
        envelope = pb.Envelope.FromString(body.removeprefix(_MAGIC))
        message = _MESSAGES.get(envelope.type_meta.kind)
        if message is None:
            raise UnknownKindError(envelope.type_meta.kind)
        found: Object = _plain(message.FromString(envelope.raw))
    except (DecodeError, OverflowError) as error:  # the latter of a time
        raise ValueError(str(error)) from error
    return {**_plain(envelope.type_meta), **found}


def _plain(value: Any) -> Any:
    """Return a message, or the value of a field, as JSON has it."""
    if isinstance(value, Message):
        special = _SPECIAL.get(value.DESCRIPTOR.name)
        return special(value) if special else dict(_fields(value))
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value


def _fields(message: Message) -> Iterator[tuple[str, Any]]:
    for field, value in message.ListFields():
        if isinstance(value, pb.Configuration):
            yield from _fields(value)  # in JSON it has no level of its own
        elif (plain := _plain(value)) is not None:
            yield field.json_name, plain


def _time(message: Any) -> str | None:
    if not message.seconds:
        return None
    found = _EPOCH + timedelta(seconds=message.seconds)
    return found.strftime("%Y-%m-%dT%H:%M:%SZ")


_SPECIAL: Final[Mapping[str, Callable[[Any], Any]]] = {
    "Quantity": lambda message: message.string,
    "Time": _time,
    "Json": lambda message: json.loads(message.raw or b"null"),
}


_JSON: Final = "application/json"
_UNKNOWN: Final = "the body of the request was in an unknown format - accepted media types include"
_UNRECOGNIZED: Final = "the object provided is unrecognized"
_SCHEME: Final = "pkg/api/legacyscheme/scheme.go:30"


def object_of(kind: Kind, media: str | None, body: bytes) -> Object:
    """Return the object in ``body``; raise ``RefusedError``."""
    form = _form(media)
    if form not in {_JSON, MEDIA}:
        raise _unsupported(f"{_UNKNOWN}: {_JSON}, application/yaml, {MEDIA}")
    made = _of_json(body) if form == _JSON else _of_binary(body)
    _check_kind(kind, made)
    return made


def options_of(media: str | None, body: bytes) -> Object:
    """Return the options of a deletion; raise ``RefusedError``."""
    is_binary = body and _form(media) == MEDIA
    found: Object = _of_binary(body) if is_binary else json.loads(body or b"{}")
    return found


def _form(media: str | None) -> str:
    return (media or _JSON).partition(";")[0]


def _of_binary(body: bytes) -> Object:
    try:
        return read(body)
    except UnknownKindError as kind:
        raise _unsupported(f"the simulated server reads {kind} in JSON only") from kind
    except ValueError as error:
        raise bad_request(f"{_UNRECOGNIZED}: {error}") from error


def _unsupported(message: str) -> RefusedError:
    return RefusedError(415, "UnsupportedMediaType", message)


def _of_json(body: bytes) -> Object:
    try:
        made: Any = json.loads(body)
    except ValueError as error:
        raise bad_request(f"{_UNRECOGNIZED}: json parse error: {error}") from error
    if not isinstance(made, dict):
        raise bad_request(f"{_UNRECOGNIZED}: json parse error: it is not an object")
    return made


def _check_kind(kind: Kind, made: Object) -> None:
    version, name = made.get("apiVersion", kind.api_version), made.get("kind", kind.name)
    group = str(version).rpartition("/")[0]
    if name != kind.name or group != kind.group:
        problem = f'no kind "{name}" is registered for version "{version}" in scheme "{_SCHEME}"'
        raise unhandled(kind, problem, str(name))
    if version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
