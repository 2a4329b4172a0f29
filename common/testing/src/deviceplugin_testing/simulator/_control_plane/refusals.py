"""What the API server refuses, in its words: statuses, and the errors of fields."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Kind, Object


class RefusedError(Exception):
    """The API server refuses a request. The message is the one of its status."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def status(self) -> Object:
        """Return the object that is the answer."""
        found: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        found |= {"message": str(self), "code": self.code}
        if self.reason:
            found["reason"] = self.reason
        if self.details is not None:
            found["details"] = self.details
        return found


class FieldError(NamedTuple):
    reason: str
    field: str
    message: str


def invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, _with("Required value", detail))


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def too_long(field: str, most: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {most} bytes")


def too_many(field: str, count: int, most: int) -> FieldError:
    message = f"Too many: {count}: must have at most {most} items"
    return FieldError("FieldValueTooMany", field, message)


def unsupported(field: str, value: object, known: Sequence[str]) -> FieldError:
    values = ", ".join(map(_shown, known))
    message = f"Unsupported value: {_shown(value)}: supported values: {values}"
    return FieldError("FieldValueNotSupported", field, message)


def not_found(field: str, value: str, detail: str) -> FieldError:
    return FieldError("FieldValueNotFound", field, f"Not found: {_shown(value)}: {detail}")


_SIMPLE: Final = (str, bool, int, type(None))


def _shown(value: object) -> str:
    if isinstance(value, _SIMPLE):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _with(message: str, detail: str) -> str:
    return f"{message}: {detail}" if detail else message


def bad_request(message: str) -> RefusedError:
    return RefusedError(400, "BadRequest", message)


def unhandled(kind: Kind, problem: str, given: str = "") -> RefusedError:
    """Return that a body, which says that it is a ``given``, is not an object of ``kind``."""
    words = f'{given or kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
    return bad_request(f"{words}: {problem}")


def invalid_object(kind: Kind, name: str, errors: Sequence[FieldError]) -> RefusedError:
    """Return that an object has ``errors``, which are not empty."""
    messages = list(dict.fromkeys(f"{error.field}: {error.message}" for error in errors))
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    causes = [error._asdict() for error in errors]
    details = {**({"name": name} if name else {}), **_group(kind)}
    details |= {"kind": kind.name, "causes": causes}
    return RefusedError(422, "Invalid", f'{kind.qualified} "{name}" is invalid: {text}', details)


def invalid_options(kind: str, error: FieldError) -> RefusedError:
    """Return that the options of a request, which are of ``kind``, have ``error``."""
    group = "meta.k8s.io"
    details = {"group": group, "kind": kind, "causes": [error._asdict()]}
    text = f'{kind}.{group} "" is invalid: {error.field}: {error.message}'
    return RefusedError(422, "Invalid", text, details)


def absent(kind: Kind, name: str) -> RefusedError:
    message = f'{kind.resource} "{name}" not found'
    return RefusedError(404, "NotFound", message, _about(kind, name))


def exists(kind: Kind, name: str) -> RefusedError:
    message = f'{kind.resource} "{name}" already exists'
    return RefusedError(409, "AlreadyExists", message, _about(kind, name))


def conflict(kind: Kind, name: str, problem: str) -> RefusedError:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {problem}'
    return RefusedError(409, "Conflict", message, _about(kind, name))


def precondition(kind: Kind, name: str, problem: str) -> RefusedError:
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {problem}'
    details = {"name": name, **_group(kind), "kind": kind.name}
    return RefusedError(409, "Conflict", message, details)


def expired(message: str) -> RefusedError:
    return RefusedError(410, "Expired", message)


def unknown_address() -> RefusedError:
    message = "the server could not find the requested resource"
    return RefusedError(404, "NotFound", message, {})


def _about(kind: Kind, name: str) -> Object:
    return {"name": name, **_group(kind), "kind": kind.plural}


def _group(kind: Kind) -> dict[str, Any]:
    return {"group": kind.group} if kind.group else {}
