"""Requests to the API server."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

from urllib3 import BaseHTTPResponse, Timeout
from urllib3.exceptions import HTTPError

from deviceplugin._platform.api_errors import GoneError, UnavailableError, error_of
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin.apiserver._credentials import Account, Anonymous, Credentials, reason_of
from deviceplugin.errors import ConfigError

TIMEOUT: Final = 10.0
PAGE: Final = 500
"""Objects in one page of a list."""
MAX_ANSWER: Final = 64 * 1024**2
"""Most bytes of one answer; 500 nodes of a large cluster are about 10 MB."""
_MAX_ERROR: Final = 65536
_BLOCK: Final = 65536
_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML too
_MERGE: Final = "application/merge-patch+json"
_EDIT: Final = "application/json-patch+json"
_FIRST_ERROR: Final = 300
"""The least status that is an error. Redirections are errors, so the token goes nowhere else."""

Object = dict[str, Any]
Query = Mapping[str, str | int | bool]


class Page(NamedTuple):
    """Some objects of a list, and the version of the whole list."""

    items: list[Object]
    version: str


class ApiServer:
    """The API server at ``url``. Thread-safe. It uses no proxy and follows no redirection.

    A path is that of the REST API, such as ``/api/v1/nodes/worker-3``. Failed requests are not
    retried, because only the caller knows whether a retry makes sense; ``UnavailableError.after``
    is the wait that the server asks for. The token is sent over https only.

    Args:
        url: The address, which begins with ``http://`` or ``https://``.
        account: Token and authority; by default the pod's, and none over plain HTTP.
        timeout: Seconds for a whole answer, and for a connection.
        name: The name of this client, for the server's log.
        count: Called with the method and the status of each answer, 0 if there was none.
        clock: Measures how long an answer takes.

    Raises:
        ConfigError: ``url`` does not begin with ``http://`` or ``https://``.
    """

    def __init__(
        self,
        url: str,
        account: Credentials | None = None,
        *,
        timeout: float = TIMEOUT,
        name: str = "deviceplugin",
        count: Callable[[str, int], None] = lambda _method, _status: None,
        clock: Clock = MONOTONIC,
    ) -> None:
        scheme = urlsplit(url).scheme
        if scheme not in {"http", "https"}:
            raise ConfigError(f"the API server's address {url!r} is not http:// or https://")
        self.url = url.rstrip("/")
        self.credentials = (account or Account()) if scheme == "https" else Anonymous()
        self._timeout = timeout
        self._name = name
        self._count = count
        self._clock = clock

    @classmethod
    def of_pod(cls, environ: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Return the API server that the environment of this pod names.

        Raises:
            ConfigError: This is not a pod.
        """
        environ = os.environ if environ is None else environ
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise ConfigError("this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set")
        return cls(
            f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", **options
        )

    def get(self, path: str, query: Query | None = None, *, timeout: float = 0.0) -> Object:
        """Return the object at ``path``, within ``timeout`` seconds instead of the usual ones."""
        return self._ask("GET", path, query, timeout=timeout)

    def pages(self, path: str, query: Query | None = None, size: int = PAGE) -> Iterator[Page]:
        """Yield the objects below ``path`` in pages of ``size``, so that few are in memory at once.

        Raises:
            GoneError: The list took so long that the server has forgotten its position.
        """
        token = ""
        while True:
            more = {"limit": size} | ({"continue": token} if token else {})
            answer = self._ask("GET", path, {**(query or {}), **more})
            yield self._page(path, answer)
            token = answer["metadata"].get("continue", "")
            if not token:
                return

    def list(self, path: str, query: Query | None = None) -> Page:
        """Return all objects below ``path``, as they were at one moment."""
        try:
            pages = [*self.pages(path, query)]
            return Page([item for page in pages for item in page.items], pages[-1].version)
        except GoneError:  # so try a list of one page, however long it is
            return self._page(path, self._ask("GET", path, query))

    def _page(self, path: str, answer: Object) -> Page:
        items, metadata = answer.get("items") or [], answer.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not version or not isinstance(items, list):
            raise UnavailableError(f"{self.url}{path}: the answer is not a list")
        return Page(items, str(version))

    def changes(self, path: str, query: Query, version: str) -> Sequence[Object]:
        """Return the events of a watch of one second: what has changed below ``path`` so far.

        Raises:
            GoneError: The server has forgotten ``version``, after which events are asked for.
        """
        more: Query = {"watch": True, "timeoutSeconds": 1, "resourceVersion": version}
        limit, deadline = Timeout(total=self._timeout), self._clock.now() + self._timeout
        answer = self._open("GET", path, {**query, **more}, None, _JSON, limit)
        lines = self._read(answer, MAX_ANSWER, deadline).splitlines()
        events = [one for one in map(_parsed, lines) if isinstance(one, dict)]
        for one in events:
            if one.get("type") == "ERROR":
                raise error_of(HTTPStatus.GONE, one.get("object"))
        return events

    def create(self, path: str, item: Object, *, dry_run: bool = False) -> Object:
        """Create ``item`` below ``path``, and return the created object.

        With ``dry_run`` nothing is created; the object is returned as it would have been.

        Raises:
            ConflictError: An object of that name exists.
        """
        query: Query | None = {"dryRun": "All"} if dry_run else None
        return self._ask("POST", path, query, item)

    def replace(self, path: str, item: Object) -> Object:
        """Put ``item`` in place of the object at ``path``.

        Raises:
            ConflictError: ``item`` has a ``resourceVersion``, and the object has another.
        """
        return self._ask("PUT", path, body=item)

    def apply(self, path: str, item: Object, manager: str) -> Object:
        """Apply ``item`` to the object at ``path``, or create it.

        This is a server-side apply; it takes over fields of other managers.
        """
        query: Query = {"fieldManager": manager, "force": True}
        return self._ask("PATCH", path, query, item, _APPLY)

    def merge(self, path: str, changes: Object) -> Object:
        """Change the object at ``path`` by a merge patch: ``None`` removes a key."""
        return self._ask("PATCH", path, body=changes, kind=_MERGE)

    def edit(self, path: str, operations: Sequence[Object]) -> Object:
        """Change the object at ``path`` by a JSON patch, which leaves the rest as it is stored."""
        return self._ask("PATCH", path, body=operations, kind=_EDIT)

    def delete(self, path: str, *, uid: str = "") -> None:
        """Delete the object at ``path``; with ``uid``, only if it has that UID.

        Raises:
            ConflictError: The object has another UID.
        """
        body = {"preconditions": {"uid": uid}} if uid else None
        self._ask("DELETE", path, body=body)

    def stream(self, path: str, query: Query, silence: float) -> BaseHTTPResponse:
        """Return an unfinished answer, such as that of a watch.

        Reading it fails after ``silence`` seconds without a byte.
        """
        timeout = Timeout(connect=self._timeout, read=silence)
        return self._open("GET", path, query, None, _JSON, timeout)

    def _ask(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Object | Sequence[Object] | None = None,
        kind: str = _JSON,
        timeout: float = 0.0,
    ) -> Object:
        seconds = timeout or self._timeout
        deadline = self._clock.now() + seconds
        answer = self._open(method, path, query, body, kind, Timeout(connect=seconds, read=seconds))
        read = self._read(answer, MAX_ANSWER, deadline)
        try:
            result = json.loads(read)
        except (ValueError, RecursionError) as error:
            raise UnavailableError(f"{self.url}{path}: the answer is not JSON: {error}") from error
        if not isinstance(result, dict):
            raise UnavailableError(f"{self.url}{path}: the answer is not an object")
        return result

    def _open(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Object | Sequence[Object] | None,
        kind: str,
        timeout: Timeout,
    ) -> BaseHTTPResponse:
        status = 0
        try:
            answer = self.credentials.pool().request(
                method,
                f"{self.url}{quote(path)}{_suffix(query)}",
                body=None if body is None else json.dumps(body, separators=(",", ":")),
                headers=self._headers(kind),
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            status = answer.status
        except (HTTPError, OSError, ValueError) as error:
            raise UnavailableError(f"{self.url}: {reason_of(error)}") from error
        finally:
            self._count(method, status)
        if status < _FIRST_ERROR:
            return answer
        body_read = self._read(answer, _MAX_ERROR, self._clock.now() + self._timeout)
        raise error_of(status, _parsed(body_read), answer.headers.get("Retry-After", ""))

    def _headers(self, kind: str) -> dict[str, str]:
        token = self.credentials.token()
        headers = {"Content-Type": kind, "Accept": _JSON, "User-Agent": self._name}
        return headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def _read(self, answer: BaseHTTPResponse, limit: int, deadline: float) -> bytes:
        """Return all of ``answer``, and make its connection available again.

        Raises:
            UnavailableError: It is too long, or incomplete at ``deadline``.
        """
        read = bytearray()
        problem = ""
        try:
            while not problem and (block := answer.read1(_BLOCK)):
                read += block
                if len(read) > limit:
                    problem = f"the answer is longer than {limit} bytes"
                elif self._clock.now() > deadline:
                    problem = "the answer took too long"
        except (HTTPError, OSError) as error:
            problem = reason_of(error)
        if problem:
            answer.close()
            raise UnavailableError(f"{self.url}: {problem}")
        answer.release_conn()
        return bytes(read)


def _suffix(query: Query | None) -> str:
    if not query:
        return ""
    return "?" + urlencode(
        {k: str(v).lower() if v is True or v is False else v for k, v in query.items()}
    )


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
