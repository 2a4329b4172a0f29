"""The API server, of which one thing is asked: to create an Event."""

import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from typing_extensions import override

from deviceplugin.tools.events._notice import NAMESPACE

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token and the certificate authority."""
TIMEOUT: Final = 10.0
"""Seconds that the API server may be silent."""
LONGEST_WAIT: Final = 600.0
"""Seconds that the API server can make us wait."""
_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
_INVALID: Final = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}
_ADVICE: Final = {
    HTTPStatus.UNAUTHORIZED: "is the token mounted that the component events asks for?",
    HTTPStatus.FORBIDDEN: "apply the ClusterRole and its binding of the component events",
}
_MAX_ANSWER: Final = 65536


class NotNowError(Exception):
    """The Event was not created, and may be later.

    ``after`` is how many seconds the API server asks for, 0 if it does not say.
    """

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class RefusedError(Exception):
    """The Event will never be created as it is."""


class Cluster:
    """The API server at ``url``. No proxy is used, and no redirection followed.

    Token and certificates are read each time, because they are renewed. The token is sent over
    https only.
    """

    def __init__(self, url: str, account: Path = ACCOUNT, timeout: float = TIMEOUT) -> None:
        self._url = url.rstrip("/")
        self._account = account
        self._timeout = timeout

    def create(self, event: Mapping[str, Any]) -> None:
        """Create ``event``; one of that name that exists already is as good.

        Raises:
            NotNowError: It could not be created.
            RefusedError: It never can.
        """
        try:
            with self._opener().open(self._request(event), timeout=self._timeout) as answer:
                answer.read(_MAX_ANSWER)
        except HTTPError as error:
            with error:
                _judge(error)
        except (OSError, ValueError, HTTPException) as error:
            raise NotNowError(f"{self._url}: {getattr(error, 'reason', error)}") from error

    def _opener(self) -> OpenerDirector:
        handlers: list[Any] = [ProxyHandler({}), _NoRedirection]
        if self._is_secure():
            authority = (self._account / "ca.crt").read_text(encoding="ascii")
            handlers.append(HTTPSHandler(context=ssl.create_default_context(cadata=authority)))
        return build_opener(*handlers)

    def _request(self, event: Mapping[str, Any]) -> Request:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "deviceplugin-events",
        }
        if self._is_secure():
            token = (self._account / "token").read_text(encoding="ascii").strip()
            headers["Authorization"] = f"Bearer {token}"
        body = json.dumps(event).encode()
        # The address is the operator's, and was checked to be http or https.
        return Request(f"{self._url}{_PATH}", body, headers, method="POST")  # noqa: S310

    def _is_secure(self) -> bool:
        return urlsplit(self._url).scheme == "https"


class _NoRedirection(HTTPRedirectHandler):
    @override
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Take the token nowhere else: what redirects is an error."""


def _judge(error: HTTPError) -> None:
    """Raise what ``error`` means, unless it means that the Event is there already."""
    if error.code == HTTPStatus.CONFLICT:
        return
    text = f"the API server answers {error.code}: {_said(error)}"
    if error.code in _INVALID:
        raise RefusedError(text)
    if error.code in _ADVICE:
        text += f"; {_ADVICE[HTTPStatus(error.code)]}"
    wait = error.headers.get("Retry-After", "")
    after = float(wait) if wait.isdecimal() and len(wait) < 10 else 0.0  # noqa: PLR2004
    raise NotNowError(text, min(after, LONGEST_WAIT)) from error


def _said(error: HTTPError) -> str:
    """Return the message of the API server, as far as there is one."""
    try:
        said = json.loads(error.read(_MAX_ANSWER))["message"]
    except (OSError, ValueError, LookupError, TypeError, HTTPException):
        said = error.reason
    return " ".join(str(said).split())[:300]
