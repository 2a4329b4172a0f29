"""The plugins that a command asks: one by its URL, or those of a namespace's pods."""

import argparse
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from deviceplugin._config.kinds.scalars import NAME_PATTERN, matches
from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, Watch
from deviceplugin.errors import ConfigError
from deviceplugin.kit.log import Problems
from deviceplugin.tools import _devices_page
from deviceplugin.tools._devices_page import (
    NO_CREDENTIALS,
    Credentials,
    NoAnswerError,
    fetch,
    page_of,
)

log = logging.getLogger(__name__)

SILENCE: Final = 3.0
"""Seconds of silence after which a plugin counts as away. On one's own network it takes a few
milliseconds, and those that are away must not hold up the others."""
_MAX_BYTES: Final = 8 * 1024**2
_PORT: Final = 9494
_LABEL: Final = re.compile(r"[\w./-]+={1,2}[\w.-]+(,[\w./-]+={1,2}[\w.-]+)*", re.ASCII)
_READING: Final = threading.Lock()
"""One answer is decoded at a time, for it takes several times its size in memory."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin on a node.

    Attributes:
        node: The node's name.
        url: Where it serves.
        state: Differs after each start of its container, and when its pod gets ready or unready.
        credentials: What it asks for.
    """

    node: str
    url: str
    state: str = ""
    credentials: Credentials = NO_CREDENTIALS

    def says(self, reduce: Callable[[Any], _T], path: str = "") -> _T:
        """Return what ``reduce`` makes of the plugin's ``/devices``.

        With a ``path``, such as ``/readyz``, that has to answer before.

        Raises:
            NoAnswerError: It does not answer, or with something else.
        """
        try:
            page = page_of(self.url)
            if path:
                self._fetch(page.removesuffix("/devices") + path)
            text = self._fetch(page)
            with _READING:
                return reduce(json.loads(text))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise NoAnswerError("is not a list of a plugin's devices") from error

    def _fetch(self, page: str) -> bytes:
        return fetch(page, SILENCE, _MAX_BYTES, self.credentials)


Plugins = Callable[[], Mapping[str, Plugin]]
"""Returns the plugins there are now, by node."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which plugins are asked."""
    add = parser.add_argument
    add("--node", metavar="NAME", help="one node, by its name in the cluster")
    add(
        "--plugin",
        metavar="URL",
        help="with --node: where the plugin serves (http://127.0.0.1:9494)",
    )
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
        raise ConfigError(
            "--plugin-token-file: with --selector it needs --plugin-ca-file: a token is sent to "
            "another machine by https only"
        )


def api_server(options: argparse.Namespace, name: str) -> ApiServer:
    """Return the API server of ``--api`` or of this pod.

    Raises:
        ConfigError: Neither is there.
    """
    if options.api:
        return ApiServer(options.api, name=name)
    try:
        return ApiServer.of_pod(name=name)
    except ConfigError as error:
        raise ConfigError(f"{error}; give --api URL") from None


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
        yield pods.by_node
    finally:
        watch.stop()
        thread.join()


class _Pods:
    """What is known of the pods."""

    def __init__(self) -> None:
        self._found: Mapping[str, Plugin] = {}
        self._problems = Problems(log)

    def changed(self, kept: dict[str, Any]) -> None:
        self._problems.over("pods")
        self._found = {one.node: one for one in kept.values() if one is not None}

    def failed(self, error: ApiServerError) -> None:
        advice = "; apply the Role and its binding" if isinstance(error, ForbiddenError) else ""
        self._problems.say("pods", "plugin pods unavailable, retrying", error=f"{error}{advice}")

    def by_node(self) -> Mapping[str, Plugin]:
        return self._found


def plugin_of(pod: Mapping[str, Any], credentials: Credentials = NO_CREDENTIALS) -> Plugin | None:
    """Return the plugin in a pod; None if it does not run.

    With the authority of its certificate in ``credentials`` it is asked by https.

    Raises:
        LookupError: ``pod`` is not a pod. TypeError and AttributeError mean the same.
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
