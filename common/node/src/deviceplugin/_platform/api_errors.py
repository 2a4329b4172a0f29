"""Errors of requests to the API server. The class says whether to try again.

They are apart from its client, so what catches them does not load the client's libraries.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from deviceplugin.errors import DevicePluginError

LONGEST_WAIT: Final = 600.0
"""Most seconds that the API server can make us wait."""


class ApiServerError(DevicePluginError):
    """A request to the API server failed.

    Attributes:
        status: The HTTP status; 0 if there was no answer.
        reason: The server's reason, such as ``AlreadyExists``; it can be empty.
        after: Seconds that the server asks us to wait before the next attempt; 0 by default.
        causes: What is wrong with which field of the object, such as ``spec.devices[3].name``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        after: float = 0.0,
        causes: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.after = after
        self.causes = causes


class UnavailableError(ApiServerError):
    """The server is unreachable, or cannot answer now: try again later."""


class ForbiddenError(ApiServerError):
    """The token is invalid, or does not allow this. Permissions may be granted later."""


class NotFoundError(ApiServerError):
    """There is no such object, or no such kind of objects."""


class ConflictError(ApiServerError):
    """The object exists already, or has changed meanwhile: read it again."""


class GoneError(ApiServerError):
    """The requested version is too old: list again."""


class InvalidError(ApiServerError):
    """The server will never accept this request."""


_CLASSES: Final[dict[int, type[ApiServerError]]] = {
    HTTPStatus.BAD_REQUEST: InvalidError,
    HTTPStatus.UNAUTHORIZED: ForbiddenError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.METHOD_NOT_ALLOWED: InvalidError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidError,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: InvalidError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidError,
}


def error_of(status: int, answer: object, retry_after: str = "") -> ApiServerError:
    """Return the error that an HTTP status, or the code of an error in a watch, means.

    ``answer`` is a ``Status`` object if it came from the API server; ``retry_after`` is a header.
    """
    body: dict[str, Any] = answer if isinstance(answer, dict) else {}
    reported = body.get("message") or _phrase(status)
    message = f"the API server answers {status}: {' '.join(str(reported).split())[:300]}"
    kind = _CLASSES.get(status, UnavailableError)
    wait = float(retry_after) if retry_after.isdecimal() and len(retry_after) < 10 else 0.0  # noqa: PLR2004
    return kind(
        message,
        status=status,
        reason=str(body.get("reason", "")),
        after=min(wait, LONGEST_WAIT),
        causes=_causes(body.get("details")),
    )


def _causes(details: object) -> list[tuple[str, str]]:
    causes = details.get("causes") if isinstance(details, dict) else None
    found = [one for one in causes if isinstance(one, dict)] if isinstance(causes, list) else []
    return [(str(one.get("field", "")), str(one.get("message", ""))) for one in found]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"
