"""The command line of ``deviceplugin evict``."""

import argparse
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.log import Problems, configure
from deviceplugin.tools import _command_line, _plugin_pods
from deviceplugin.tools._command_line import add_repeated, add_seconds
from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools._plugin_pods import Plugin, Visit, keep_visiting
from deviceplugin.tools.evict._evictor import Budget, Evictor
from deviceplugin.tools.evict._pods import Patience, Pods

log = logging.getLogger(__name__)

_NAME: Final = "deviceplugin-evict"
_SHORTEST: Final = timedelta(minutes=2)

_DESCRIPTION: Final = """\
Evict the pods whose device has been unhealthy for too long, so that their controllers replace them,
on the same or another node, with a device that works. The command asks the plugin of each node for
its /devices. Without --evict it only logs which pods it would evict."""

_EXAMPLES: Final = """\
examples:
  deviceplugin evict --namespace lamp --selector app.kubernetes.io/name=lamp-device-plugin
  deviceplugin evict --node worker-3                                   one node, beside its plugin
  deviceplugin evict --node worker-3 --evict                           evict
  deviceplugin evict --node n --evict --patience 30m --patience example.com/gpu=5m
  deviceplugin evict --node n --evict --per-minute 2 --per-hour 20

PodDisruptionBudgets are respected, because it requests evictions and does not delete pods. Pods
without a controller, static pods, pods in a kept namespace and pods annotated
deviceplugin.dev/evict=false stay.

Exit status: 0 after a stop; 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _run)


def _run(options: argparse.Namespace) -> int:
    of = _patience(options.patience)
    _plugin_pods.check(options)
    api = _plugin_pods.api_server(options, _NAME)
    configure("info", "auto")
    all_nodes = Budget(options.total_per_minute, options.total_per_hour)

    kept = ["kube-system", *options.keep_namespace]

    def make(node: str) -> Visit:
        pods = Pods(api, node, bare=options.bare_pods)
        budget = Budget(options.per_minute, options.per_hour, all_nodes)
        evictor = Evictor(pods, budget, kept, dry_run=not options.evict)
        return visit(Patience(of, options.resource), evictor)

    log.info("watching for pods to evict", extra={"evicts": options.evict})
    with _plugin_pods.plugins(options, api) as plugins:
        keep_visiting(make, plugins, options.interval)
    return 0


def visit(patience: Patience, evictor: Evictor) -> Visit:
    problems = Problems(log)

    def ask(plugin: Plugin) -> float:
        try:
            suspects = plugin.says(lambda page: patience.observe(page, time.monotonic()))
        except NoAnswerError as error:
            text = f"{plugin.url}: {error}"
            problems.say("plugin", "plugin of a node unreachable", node=plugin.node, error=text)
        else:
            problems.over("plugin")
            evictor.act(suspects, time.monotonic())
        return 0.0

    return ask


def _patience(words: Sequence[str]) -> Callable[[str], float]:
    """Return a function from a resource to its seconds, from ``10m`` and ``RESOURCE=5m``."""
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
    _plugin_pods.add_options(parser)
    add("--evict", action="store_true", help="evict, and do not only log")
    words = "how long a device may be unhealthy (10m); can be repeated"
    add_repeated(parser, "--patience", "[RESOURCE=]TIME", words)
    add_repeated(parser, "--resource", "NAME", "only these (all)")
    add("--per-minute", type=_count, default=1, metavar="N", help="pods of a node at most (1)")
    add("--per-hour", type=_count, default=10, metavar="N", help="pods of a node at most (10)")
    add("--total-per-minute", type=_count, default=5, metavar="N", help="of all nodes at most (5)")
    add("--total-per-hour", type=_count, default=30, metavar="N", help="of all nodes at most (30)")
    words = "evict no pods there or in kube-system; can be repeated"
    add_repeated(parser, "--keep-namespace", "NAME", words)
    add("--bare-pods", action="store_true", help="also evict pods without a controller")
    # CONFIRM has to be two polls at least.
    add_seconds(parser, "--interval", "10s", "between polls", "1s", "30s")
    return parser
