"""What can go wrong between us and the API server; the class says whether to try again."""

from http import HTTPStatus
from typing import Any, Final

from deviceplugin.errors import DevicePluginError

LONGEST_WAIT: Final = 600.0
"""Seconds that the API server can make us wait."""


class ApiServerError(DevicePluginError):
    """The API server did not do what it was asked.

    Attributes:
        status: The HTTP status, 0 if there was no answer.
        reason: The server's own word for it, such as ``AlreadyExists``; may be empty.
        after: Seconds that the server asks us to wait before the next attempt, 0 if it does not.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.after = after


class UnavailableError(ApiServerError):
    """It could not be asked, or cannot answer now: try again later."""


class ForbiddenError(ApiServerError):
    """The token is not valid, or does not allow this. Rights may come later."""


class NotFoundError(ApiServerError):
    """There is no such object, or no such kind of objects."""


class ConflictError(ApiServerError):
    """The object exists already, or has changed meanwhile: read it again."""


class GoneError(ApiServerError):
    """The version asked for is too old: list again."""


class InvalidError(ApiServerError):
    """The request will never be accepted as it is."""


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
    """Return the error that ``status`` means.

    Args:
        status: Of HTTP, or the code of an error in a watch.
        answer: The body, a ``Status`` object if the API server itself answered.
        retry_after: The header of that name; seconds, or it is ignored.
    """
    body: dict[str, Any] = answer if isinstance(answer, dict) else {}
    said = body.get("message") or _phrase(status)
    message = f"the API server answers {status}: {' '.join(str(said).split())[:300]}"
    kind = _CLASSES.get(status, UnavailableError)
    wait = float(retry_after) if retry_after.isdecimal() and len(retry_after) < 10 else 0.0  # noqa: PLR2004
    return kind(
        message, status=status, reason=str(body.get("reason", "")), after=min(wait, LONGEST_WAIT)
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"
