"""Objects in Kubernetes' binary format, which clients in Go send for its own kinds."""

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
    Object,
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
    """Return the object in ``body`` as it would be in JSON.

    Raises:
        ValueError: It is not in the format.
        UnknownKindError: Its kind is read in JSON only.
    """
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
