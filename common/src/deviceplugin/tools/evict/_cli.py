"""The command line of ``deviceplugin evict``."""

import argparse
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from deviceplugin._telemetry import log as _log
from deviceplugin.apiserver import ApiServer
from deviceplugin.errors import ConfigError
from deviceplugin.kit.log import Problems
from deviceplugin.tools import _command_line
from deviceplugin.tools._devices_page import NoAnswerError, fetch, page_of
from deviceplugin.tools.evict._budget import Budget
from deviceplugin.tools.evict._evictor import Evictor
from deviceplugin.tools.evict._patience import Patience, Suspect
from deviceplugin.tools.evict._pods import Pods

log = logging.getLogger(__name__)

_TIMEOUT: Final = 5.0
_MAX_BYTES: Final = 8 * 1024**2
_NAME: Final = "deviceplugin-evict"
_SHORTEST: Final = timedelta(minutes=2)

_DESCRIPTION: Final = """\
Evict the pods of this node whose device has been unhealthy for too long, so that their controllers
replace them, here or on another node, with a device that works. The command runs beside a plugin,
and reads its /devices. Without --evict it only logs which pods it would evict."""

_EXAMPLES: Final = """\
examples:
  deviceplugin evict --node worker-3                                   log what would be evicted
  deviceplugin evict --node worker-3 --evict                           evict
  deviceplugin evict --node n --evict --patience 30m --patience example.com/gpu=5m
  deviceplugin evict --node n --evict --per-minute 2 --per-hour 20

PodDisruptionBudgets are respected, because it requests evictions and does not delete pods. Pods
without a controller, static pods, pods in a kept namespace and pods annotated
deviceplugin.dev/evict=false stay.

Exit status: 0 after a stop; 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin evict`` with the arguments ``argv`` and return its exit status.

    0 after a stop; 2 for a wrong command line.
    """
    return _command_line.run(_parser(), argv, _run)


def _run(options: argparse.Namespace) -> int:
    patience = Patience(_patience(options.patience), options.resource)
    api = ApiServer(options.api, name=_NAME) if options.api else _own_cluster()
    _log.configure("info", "auto")
    pods = Pods(api, options.node, bare=options.bare_pods)
    budget = Budget(options.per_minute, options.per_hour)
    evictor = Evictor(pods, budget, options.keep_namespace, dry_run=not options.evict)
    log.info("watching for pods to evict", extra={"evicts": options.evict})
    _keep_acting(options, patience, evictor)
    return 0


def _keep_acting(options: argparse.Namespace, patience: Patience, evictor: Evictor) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    problems = Problems(log)
    while not stop.is_set():
        try:
            suspects = _suspects(options.plugin, patience)
        except NoAnswerError as error:
            problems.say("plugin", "plugin unreachable", error=f"{options.plugin}: {error}")
        else:
            problems.over("plugin")
            evictor.act(suspects, time.monotonic())
        stop.wait(options.interval)


def _suspects(plugin: str, patience: Patience) -> Sequence[Suspect]:
    """Return the suspects in the plugin's answer; raise ``NoAnswerError`` if it is not valid."""
    try:
        page = json.loads(fetch(page_of(plugin), _TIMEOUT, _MAX_BYTES))
        return patience.observe(page, time.monotonic())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoAnswerError("is not a list of a plugin's devices") from error


def _own_cluster() -> ApiServer:
    try:
        return ApiServer.of_pod(name=_NAME)
    except ConfigError as error:
        raise ConfigError(f"{error}; give --api URL") from None


def _patience(words: Sequence[str]) -> Callable[[str], float]:
    """Return a function from a resource to its seconds, from ``10m`` and ``RESOURCE=5m``.

    Raises:
        ConfigError: A word has neither form, or is less than two minutes.
    """
    seconds: dict[str, float] = {}
    for word in words:
        resource, _, text = word.rpartition("=")
        try:
            duration = _command_line.duration(text)
        except argparse.ArgumentTypeError as error:
            raise ConfigError(f"--patience {word}: {error}") from None
        if duration < _SHORTEST:
            raise ConfigError(
                f"--patience {word}: is less than 2m, which a restart of a driver can take"
            )
        seconds[resource] = duration.total_seconds()
    default = seconds.get("", 600.0)
    return lambda resource: seconds.get(resource, default)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("evict", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("--node", required=True, metavar="NAME", help="the node's name in the cluster")
    add("--evict", action="store_true", help="evict, and do not only log")
    add(
        "--patience",
        action="append",
        default=[],
        metavar="[RESOURCE=]TIME",
        help="how long a device may be unhealthy (10m); can be repeated",
    )
    add("--resource", action="append", default=[], metavar="NAME", help="only these (all)")
    add("--per-minute", type=_count, default=1, metavar="N", help="pods evicted at most (1)")
    add("--per-hour", type=_count, default=10, metavar="N", help="pods evicted at most (10)")
    add(
        "--keep-namespace",
        action="append",
        default=["kube-system"],
        metavar="NAME",
        help="evict no pods there; can be repeated, and always includes kube-system",
    )
    add("--bare-pods", action="store_true", help="also evict pods without a controller")
    add(
        "--plugin",
        default="http://127.0.0.1:9494",
        metavar="URL",
        help="the plugin's address (%(default)s)",
    )
    add(
        "--interval",
        type=_command_line.seconds("1s", "30s"),  # so that CONFIRM is two polls at least
        default="10s",
        metavar="TIME",
        help="between polls (10s)",
    )
    add("--api", metavar="URL", help="the API server, if this does not run in a pod")
    return parser
