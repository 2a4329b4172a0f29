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
from deviceplugin.tools.evict._evictor import CONFIRM, Evictor
from deviceplugin.tools.evict._patience import Patience, Suspect
from deviceplugin.tools.evict._pods import Pods

log = logging.getLogger(__name__)

_TIMEOUT: Final = 5.0
_MAX_BYTES: Final = 8 * 1024**2
_NAME: Final = "deviceplugin-evict"
_SHORTEST: Final = timedelta(minutes=2)

_DESCRIPTION: Final = """\
Evict the pods of this node whose device has been unhealthy for too long, so that their controllers
replace them, here or on another node, with a device that works. It runs beside a plugin, and asks
it for its /devices. Without --evict it says which pods it would evict, and evicts none."""

_EXAMPLES: Final = """\
examples:
  deviceplugin evict --node worker-3                                   say what would be evicted
  deviceplugin evict --node worker-3 --evict                           evict
  deviceplugin evict --node n --evict --patience 30m --patience example.com/gpu=5m
  deviceplugin evict --node n --evict --per-minute 2 --per-hour 20

PodDisruptionBudgets hold: it asks for an eviction, it does not delete. Pods without a controller,
static pods, pods in a kept namespace and pods annotated deviceplugin.dev/evict=false stay.

Exit status: 0 if told to stop; 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin evict`` with the arguments ``argv`` and return its exit status.

    0 when told to stop; 2 for a wrong command line.
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
    once = Problems(log)
    while not stop.is_set():
        try:
            suspects = _suspects(options.plugin, patience)
        except NoAnswerError as error:
            once.say("plugin", "plugin unreachable", error=f"{options.plugin}: {error}")
        else:
            once.over("plugin")
            evictor.act(suspects, time.monotonic())
        stop.wait(options.interval)


def _suspects(plugin: str, patience: Patience) -> Sequence[Suspect]:
    """Return whom the plugin's answer makes a suspect; ``NoAnswerError`` without a valid one."""
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
    """Return how many seconds each resource has, by ``10m`` and ``RESOURCE=5m``.

    Raises:
        ConfigError: A word is neither, or less than two minutes.
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
                f"--patience {word}: is less than 2m; a driver's restart takes as long"
            )
        seconds[resource] = duration.total_seconds()
    default = seconds.get("", 600.0)
    return lambda resource: seconds.get(resource, default)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def _seconds(text: str) -> float:
    seconds = _command_line.duration(text).total_seconds()
    if not 1 <= seconds <= CONFIRM / 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1s and 30s")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("evict", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("--node", required=True, metavar="NAME", help="the node's name in the cluster")
    add("--evict", action="store_true", help="evict, and do not only say so")
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
        help="evict nobody there; can be repeated, and kube-system always is one",
    )
    add("--bare-pods", action="store_true", help="evict also pods that nothing will replace")
    add(
        "--plugin",
        default="http://127.0.0.1:9494",
        metavar="URL",
        help="where the plugin serves (%(default)s)",
    )
    add("--interval", type=_seconds, default="10s", metavar="TIME", help="between questions (10s)")
    add("--api", metavar="URL", help="the API server, where this is not a pod")
    return parser
