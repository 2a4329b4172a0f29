"""Reading the body of a request."""

import json
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.api_server import binary
from deviceplugin_testing.simulator._control_plane.kinds import Kind, Object
from deviceplugin_testing.simulator._control_plane.refusals import (
    RefusedError,
    bad_request,
    unhandled,
)

_JSON: Final = "application/json"
_UNKNOWN: Final = "the body of the request was in an unknown format - accepted media types include"
_GO_TYPES: Final = {list: "array", str: "string", bool: "bool"}
_TYPE: Final = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; '
    r'Kind string "json:\"kind,omitempty\"" }'
)
_SCHEME: Final = "pkg/api/legacyscheme/scheme.go:30"


def object_of(kind: Kind, media: str | None, body: bytes) -> Object:
    """Return the object in ``body``.

    Raises:
        RefusedError: It is not in a known format, or not an object of ``kind``.
    """
    form = _form(media)
    if form not in {_JSON, binary.MEDIA}:
        raise _unsupported(f"{_UNKNOWN}: {_JSON}, application/yaml, {binary.MEDIA}")
    made = _of_json(kind, body) if form == _JSON else _of_binary(body)
    _check_kind(kind, made)
    return made


def options_of(media: str | None, body: bytes) -> Object:
    """Return the options of a deletion.

    Raises:
        RefusedError: They cannot be read.
    """
    is_binary = body and _form(media) == binary.MEDIA
    found: Object = _of_binary(body) if is_binary else json.loads(body or b"{}")
    return found


def _form(media: str | None) -> str:
    return (media or _JSON).partition(";")[0]


def _of_binary(body: bytes) -> Object:
    try:
        return binary.read(body)
    except binary.UnknownKindError as kind:
        raise _unsupported(f"the simulated server reads {kind} in JSON only") from kind
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


def _unsupported(message: str) -> RefusedError:
    return RefusedError(415, "UnsupportedMediaType", message)


def _of_json(kind: Kind, body: bytes) -> Object:
    try:
        made: Any = json.loads(body)
    except ValueError as error:
        ends = getattr(error, "pos", 0) >= len(body)
        problem = "unexpected end of JSON input" if ends else str(error)
        raise _unrecognized(kind, f"json parse error: {problem} ({_shown(body)})") from error
    if not isinstance(made, dict):
        shown = _GO_TYPES.get(type(made), "number")
        problem = f"json: cannot unmarshal {shown} into Go value of type {_TYPE} ({body.hex()})"
        raise _unrecognized(kind, f"json parse error: {problem}")
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


def _unrecognized(kind: Kind, problem: str) -> RefusedError:
    message = f"the object provided is unrecognized (must be of type {kind.name})"
    return bad_request(f"{message}: couldn't get version/kind; {problem}")


def _shown(body: bytes) -> str:
    return body.decode(errors="replace") or "<empty>"
