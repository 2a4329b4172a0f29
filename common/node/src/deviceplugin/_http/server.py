"""Metrics, probes and the inventory over HTTP. Nothing on the device path depends on it.

It is imported after the start (``listener.py``): the libraries take time and memory.
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from deviceplugin._http.access import Access
from deviceplugin._http.answering import Job
from deviceplugin._http.connections import Connections
from deviceplugin._http.devices_report import Report
from deviceplugin._http.messages import TEXT, HttpAnswer, Request, RequestRefusedError, parse
from deviceplugin._platform.boot import boot_id
from deviceplugin._telemetry.metrics import Metrics

if TYPE_CHECKING:
    from deviceplugin._http.certificate import Certificate

log = logging.getLogger(__name__)

_INDEX: Final = "/\n/metrics\n/healthz\n/readyz\n/devices\n"

_ENCODER: Final = json.JSONEncoder(default=str, separators=(",\n", ": "))
"""Writes a line for each value, without indentation, because the fast encoder has none."""
_CHUNK: Final = 50
"""Devices that are encoded before other threads may run."""

_KUBELET: Final = "kube-probe/"
"""Beginning of the header ``User-Agent`` of a kubelet's probes."""


class View(Protocol):
    """The state that the server reports."""

    def alive(self) -> str:
        """Return why the process should be restarted, or an empty string."""

    def ready(self) -> str:
        """Return why devices cannot be allocated, or an empty string."""

    def remarks(self) -> Sequence[str]:
        """Return what else is wrong, though devices can be allocated."""

    def reports(self) -> Sequence[Report]:
        """Return all resources and their devices."""

    def notes(self) -> Mapping[str, Any]:
        """Return what is to be said beside the resources, for JSON, by its key."""


class HttpServer:
    """The HTTP server of ``listener``, a socket that listens. ``run`` is its thread.

    ``probed`` is called before each request of a kubelet's probes is answered.
    """

    def __init__(
        self,
        listener: socket.socket,
        view: View,
        metrics: Metrics,
        *,
        access: Access | None = None,
        certificate: "Certificate | None" = None,
        probed: Callable[[], None] = lambda: None,
    ) -> None:
        self._view = view
        self._probes = {"/healthz": view.alive, "/readyz": view.ready}
        page = Shared(lambda _: _page(view, metrics))
        devices = Shared(lambda _: _devices(view.reports(), view.notes()))
        self._routes: Mapping[str, Callable[[str], HttpAnswer]] = {
            "/": lambda _accept: page(),
            "/metrics": Shared(lambda accept: HttpAnswer(200, *metrics.expose(accept))),
            "/devices": lambda _accept: devices(),
        }
        self._access = access or Access(None, ())
        self._probed = probed
        refusal = HttpAnswer(503, TEXT, b"too many clients\n", {"Retry-After": "1"})
        tls = certificate.context if certificate else None
        whole = refusal.head() + refusal.body
        self._connections = Connections(listener, self._plan, refusal=whole, tls=tls)
        self.port: int = listener.getsockname()[1]

    def run(self) -> None:
        with suppress(RequestRefusedError):  # it is logged now: nobody might ask for long
            self._access.read_token()
        self._connections.run()

    def stop(self) -> None:
        self._connections.stop()

    def _plan(self, head: bytes) -> bytes | Job:
        try:
            request = parse(head)
            return Job(lambda: self._answer(request), urgent=request.path in self._probes)
        except RequestRefusedError as error:
            answer = error.answer
            log.debug("%s -", answer.status)
            return answer.head() + answer.body

    def _answer(self, request: Request) -> tuple[bytes, bytes]:
        if request.headers.get("User-Agent", "").startswith(_KUBELET):
            self._probed()
        try:
            answer = self._find(request)
        except RequestRefusedError as error:
            answer = error.answer
        log.debug('"%s" %s -', ascii(request.line)[1:-1], answer.status)
        return answer.head(), b"" if request.method == "HEAD" else answer.body

    def _find(self, request: Request) -> HttpAnswer:
        if probe := self._probes.get(request.path):
            detailed = self._access.may_know_reasons(request.headers)
            remarks = self._view.remarks() if detailed and request.path == "/readyz" else ()
            return _probe(probe(), remarks, detailed=detailed)
        self._access.check(request.headers)
        if route := self._routes.get(request.path):
            return route(request.headers.get("Accept", ""))
        return HttpAnswer(404, TEXT, _INDEX.encode())


def _probe(problem: str, remarks: Sequence[str], *, detailed: bool) -> HttpAnswer:
    """Return what a probe gets. ``remarks`` do not make it fail, because devices are served."""
    first = (problem if detailed else "not ready") if problem else "ok"
    text = "".join(f"{line}\n" for line in (first, *remarks))
    return HttpAnswer(503 if problem else 200, TEXT, text.encode(errors="replace"))


def _devices(reports: Iterable[Report], notes: Mapping[str, Any]) -> HttpAnswer:
    """Return all reports as JSON, encoded in chunks so that an Allocate need not wait for it."""
    resources = (
        f'{_ENCODER.encode(report.as_json())[:-1]},\n"devices": [{_encoded_devices(report)}]}}'
        for report in reports
    )
    more = {**notes, "boot": boot_id()}
    text = f'{{"resources": [{",".join(resources)}],\n{_ENCODER.encode(more)[1:]}\n'
    return HttpAnswer(200, "application/json", text.encode())


def _encoded_devices(report: Report) -> str:
    devices = report.devices_as_json()
    encoded = []
    while chunk := list(islice(devices, _CHUNK)):
        encoded.append(_ENCODER.encode(chunk)[1:-1])
        time.sleep(0)  # let another thread run
    return ",\n".join(encoded)


def _page(view: View, metrics: Metrics) -> HttpAnswer:
    from deviceplugin._http.page import policy, render  # few look at it

    name, events = socket.gethostname(), metrics.events.latest()
    page = render(view.reports(), events, name=name, problem=view.ready(), now=time.time())
    return HttpAnswer(200, "text/html; charset=utf-8", page, {"Content-Security-Policy": policy()})


_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Shares the result of ``make`` between threads that ask at the same time.

    A caller waits for the next run and shares its result, so no answer is older than its question.
    Callers that ask at once cause two runs at most. No result is kept after the last caller has
    left. If ``make`` raises, only the caller that ran it gets the error; the next one tries again.
    """

    def __init__(self, make: Callable[[str], _T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._asking = 0
        self._begun = 0
        self._made: tuple[int, str, _T] | None = None
        """The number of the run, its question, and the answer."""

    def __call__(self, question: str = "") -> _T:
        """Return the answer to ``question``; only callers with the same question share it."""
        with self._lock:
            self._asking += 1
            begun = self._begun
        try:
            with self._making:
                made = self._made
                if made is not None and made[0] > begun and made[1] == question:
                    return made[2]
                with self._lock:
                    self._begun += 1
                    number = self._begun
                self._made = number, question, self._make(question)
                return self._made[2]
        finally:
            with self._lock:
                self._asking -= 1
                if not self._asking:
                    self._made = None
