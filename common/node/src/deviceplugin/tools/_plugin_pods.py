"""The plugins that a command asks, one by its URL or those of a namespace, and their visits.

Several are visited at a time, none twice at once, and slow ones seldom.
"""

import argparse
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from deviceplugin._app.signals import set_when_stopped
from deviceplugin._config.kinds.scalars import NAME_PATTERN, matches
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, Watch
from deviceplugin.errors import ConfigError
from deviceplugin.kit.log import Problems
from deviceplugin.tools import _devices_page
from deviceplugin.tools._devices_page import (
    MAX_BYTES,
    NO_CREDENTIALS,
    Credentials,
    ask,
    fetch,
    page_of,
)

log = logging.getLogger(__name__)

SILENCE: Final = 3.0
"""Seconds of silence after which a plugin counts as away. On one's own network it takes a few
milliseconds, and those that are away must not hold up the others."""
_PORT: Final = 9494
_LABEL: Final = re.compile(r"[\w./-]+={1,2}[\w.-]+(,[\w./-]+={1,2}[\w.-]+)*", re.ASCII)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin on a node."""

    node: str
    url: str
    state: str = ""
    """Differs after each start of its container, and when its pod gets ready or unready."""
    credentials: Credentials = NO_CREDENTIALS

    @property
    def is_ready(self) -> bool:
        return self.state.startswith("True")

    def says(self, reduce: Callable[[Any], _T], path: str = "") -> _T:
        """Return what ``reduce`` makes of the plugin's ``/devices``; raise ``NoAnswerError``.

        With a ``path``, such as ``/readyz``, that has to answer before.
        """
        if path:
            page = page_of(self.url).removesuffix("/devices") + path
            fetch(page, SILENCE, MAX_BYTES, self.credentials)
        return ask(self.url, reduce, SILENCE, self.credentials)


Plugins = Callable[[], Mapping[str, Plugin]]
"""Returns the plugins there are now, by node."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--node", metavar="NAME", help="one node, by its name in the cluster")
    words = "with --node: where the plugin serves (http://127.0.0.1:9494)"
    add("--plugin", metavar="URL", help=words)
    add("--selector", metavar="LABELS", help="all nodes: the labels of the plugin's pods")
    add("--namespace", metavar="NAME", help="with --selector: where the pods are")
    add("--api", metavar="URL", help="the API server, if this does not run in a pod")
    _devices_page.add_options(parser)


def check(options: argparse.Namespace) -> None:
    """Raise ``ConfigError`` unless the options name one plugin or the pods of one namespace."""
    if bool(options.node) == bool(options.selector):
        raise ConfigError("give --node NAME for one node, or --selector LABELS for all of a plugin")
    if options.node and options.namespace:
        raise ConfigError("--namespace: is for --selector")
    if options.selector and options.plugin:
        raise ConfigError("--plugin: is for --node; with --selector the pods say where they are")
    if options.selector and not _LABEL.fullmatch(options.selector):
        raise ConfigError(f"--selector {options.selector}: is not KEY=VALUE[,KEY=VALUE]")
    if options.selector and not matches(options.namespace or "", NAME_PATTERN):
        raise ConfigError(f"--namespace {options.namespace or ''}: is not the name of a namespace")
    if options.selector and options.plugin_token_file and not options.plugin_ca_file:
        why = "a token is sent to another machine by https only"
        raise ConfigError(f"--plugin-token-file: with --selector it needs --plugin-ca-file: {why}")


def api_server(options: argparse.Namespace, name: str, advice: str = "give --api URL") -> ApiServer:
    """Return the API server of ``--api`` or of this pod; raise ``ConfigError`` without either."""
    if options.api:
        return ApiServer(options.api, name=name)
    try:
        return ApiServer.of_pod(name=name)
    except ConfigError as error:
        raise ConfigError(f"{error}; {advice}") from None


def advised(error: ApiServerError, advice: str) -> str:
    """Return the message of ``error``, with advice for who has no rights."""
    return f"{error}; {advice}" if isinstance(error, ForbiddenError) else str(error)


@contextmanager
def plugins(options: argparse.Namespace, api: ApiServer) -> Iterator[Plugins]:
    """Keep current what plugins there are, while in the context."""
    credentials = Credentials.of(options)
    if options.node:
        url = options.plugin or f"http://127.0.0.1:{_PORT}"
        one = Plugin(options.node, url, credentials=credentials)
        yield lambda: {one.node: one}
        return
    pods = _Pods()
    watch = Watch(
        api,
        f"/api/v1/namespaces/{options.namespace}/pods",
        {"labelSelector": options.selector},
        # Pods have new addresses each time, which no certificate can name.
        keep=partial(plugin_of, credentials=credentials._replace(is_named=False)),
        changed=pods.changed,
        failed=pods.failed,
    )
    thread = threading.Thread(target=watch.run, name="pods", daemon=True)
    thread.start()
    try:
        yield lambda: pods.found
    finally:
        watch.stop()
        thread.join()


class _Pods:
    def __init__(self) -> None:
        self.found: Mapping[str, Plugin] = {}
        self._problems = Problems(log)

    def changed(self, kept: dict[str, Any]) -> None:
        self._problems.over("pods")
        # Of two on a node, as with maxSurge, one that is not ready hides no other.
        found = sorted(filter(None, kept.values()), key=lambda one: one.is_ready)
        self.found = {one.node: one for one in found}

    def failed(self, error: ApiServerError) -> None:
        text = advised(error, "apply the Role and its binding")
        self._problems.say("pods", "plugin pods unavailable, retrying", error=text)


def plugin_of(pod: Mapping[str, Any], credentials: Credentials = NO_CREDENTIALS) -> Plugin | None:
    """Return the plugin in a pod, which is asked by https if its authority is in ``credentials``.

    None if it does not run. Errors of builtin classes mean that ``pod`` is not a pod.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    node, address = spec.get("nodeName"), status.get("podIP")
    runs = status.get("phase") == "Running" and "deletionTimestamp" not in metadata
    if not (node and address and runs):
        return None
    ports = [port for one in spec["containers"] for port in one.get("ports") or ()]
    port = next((int(one["containerPort"]) for one in ports if one.get("name") == "http"), _PORT)
    host = f"[{address}]" if ":" in address else address
    ready = [one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"]
    starts = [one.get("containerID", "") for one in status.get("containerStatuses") or ()]
    scheme = "https" if credentials.ca_file else "http"
    state = " ".join([*ready, *starts])
    return Plugin(str(node), f"{scheme}://{host}:{port}", state, credentials)


MOST: Final = 32
"""Visits at a time."""
FORGOTTEN: Final = 3600.0
"""Seconds after which a node without a plugin is forgotten. A plugin that is replaced is back long
before, and nothing that is remembered of a node counts for longer."""
_REST: Final = 15.0
"""A visit that took as long as a plugin may be silent is followed by a pause so many times as long.
So a node that does not answer takes a sixteenth of a thread, and 500 of them leave time for the
others."""

Visit = Callable[[Plugin], float]
"""Returns for how many seconds nothing is to be done, unless the plugin's pod changes."""


@dataclass(slots=True)
class _Visited:
    visit: Visit
    seen: float
    plugin: Plugin | None = None
    """As it was visited last."""
    due: float = float("-inf")
    running: Future[float] | None = None


@dataclass(eq=False, repr=False)
class Visits:
    make: Callable[[str], Visit]
    """Makes what visits the plugin of a node, and has what is remembered of the node. It is called
    in one thread at a time, but not always in the same."""
    pool: ThreadPoolExecutor
    clock: Clock = MONOTONIC

    def __post_init__(self) -> None:
        self._nodes: dict[str, _Visited] = {}

    def step(self, plugins: Mapping[str, Plugin]) -> None:
        """Begin the visits that are due."""
        now = self.clock.now()
        for name, plugin in plugins.items():
            if name not in self._nodes:
                self._nodes[name] = _Visited(self.make(name), now)
            node = self._nodes[name]
            node.seen = now
            self._begin(node, plugin, now)
        kept = {name: node for name, node in self._nodes.items() if now - node.seen <= FORGOTTEN}
        self._nodes = kept

    def _begin(self, node: _Visited, plugin: Plugin, now: float) -> None:
        if node.running is not None:
            if not node.running.done():
                return
            node.due, node.running = node.running.result(), None
        if now >= node.due or plugin != node.plugin:
            node.plugin = plugin
            node.running = self.pool.submit(self._visit, node.visit, plugin)

    def _visit(self, visit: Visit, plugin: Plugin) -> float:
        """Visit a plugin, and return when it is to be visited again."""
        began = self.clock.now()
        idle = visit(plugin)
        ended = self.clock.now()
        took = ended - began
        return ended + (max(idle, _REST * took) if took >= SILENCE else idle)


def keep_visiting(make: Callable[[str], Visit], plugins: Plugins, interval: float) -> None:
    """Visit ``plugins`` every ``interval`` seconds until the process is told to stop."""
    stop = set_when_stopped()
    pool = ThreadPoolExecutor(MOST, thread_name_prefix="visit")
    visits = Visits(make, pool)
    try:
        while not stop.is_set():
            visits.step(plugins())
            stop.wait(interval)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
