"""The command line of ``deviceplugin events``."""

import argparse
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from deviceplugin._app.exit_status import FAILED
from deviceplugin._app.signals import set_when_stopped
from deviceplugin.kit.log import Problems, configure
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import add_seconds
from deviceplugin.tools._devices_page import Credentials, NoAnswerError, add_options
from deviceplugin.tools._plugin_pods import api_server
from deviceplugin.tools.events._notice import Notice, as_event, read_facts
from deviceplugin.tools.events._watch import Sender, Watch, create_event

log = logging.getLogger(__name__)

_PLUGIN_TIMEOUT: Final = 5.0
_NAME: Final = "deviceplugin-events"
_STOP_TIMEOUT: Final = 2.0
"""Seconds to wait at a stop for an Event that is being created."""

_DESCRIPTION: Final = """\
Create Events of this node when devices become unhealthy or healthy again, or when their plugin is
not registered: `kubectl describe node` shows them. Pods get one when their device is back under
another device number. The command runs beside a plugin, and reads its
/devices. Without news it sends no requests to the cluster."""

_EXAMPLES: Final = """\
examples:
  deviceplugin events --node worker-3                       as deployments/components/events does
  deviceplugin events --node worker-3 --dry-run             print the Events, create none
  deviceplugin events --node worker-3 --dry-run --once      show what is unhealthy now
  deviceplugin events --node n --dry-run --once --plugin devices.json

In a pod, it finds the API server's address, the token and the certificate by itself.

Exit status: 0 after a stop, or with --once if all Events were created; 1 with --once if not; 2 if
the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _report, (NoAnswerError,))


def _report(options: argparse.Namespace) -> int:
    post = _post(options)
    configure("warning" if options.dry_run else "info", "auto")
    watch = Watch(options.quiet_period, all_news=options.once)
    sender = Sender(watch, post)
    if options.once:
        return _report_once(options, watch, sender)
    return _keep_reporting(options, watch, sender)


def _report_once(options: argparse.Namespace, watch: Watch, sender: Sender) -> int:
    facts = read_facts(options.plugin, _PLUGIN_TIMEOUT, Credentials.of(options))
    watch.observe(facts, time.monotonic())
    while not sender.step():
        pass
    return FAILED if sender.refused or watch.news(time.monotonic()) else 0


def _keep_reporting(options: argparse.Namespace, watch: Watch, sender: Sender) -> int:
    stop = set_when_stopped()
    thread = threading.Thread(target=sender.run, name="sender", daemon=True)
    thread.start()
    problems = Problems(log)
    while True:
        try:
            facts = read_facts(options.plugin, _PLUGIN_TIMEOUT, Credentials.of(options))
        except NoAnswerError as error:
            problems.say("plugin", "plugin unreachable", error=str(error))
        else:
            problems.over("plugin")
            if watch.observe(facts, time.monotonic()):
                problems.say("room", "too many devices, some not watched")
            sender.wake()
        if stop.wait(options.interval):
            break
    sender.stop()
    thread.join(_STOP_TIMEOUT)
    return 0


def _post(options: argparse.Namespace) -> Callable[[Notice], None]:
    if options.dry_run:
        return lambda notice: _show(notice, options.node)
    api = api_server(options, _NAME, "give --api URL, or --dry-run")
    return lambda notice: create_event(api, as_event(notice, options.node, datetime.now(UTC)))


def _show(notice: Notice, node: str) -> None:
    pod = notice.facts[0].pod
    what = f"pod/{pod[1]} -n {pod[0]}" if pod else f"node/{node}"
    line = f"{notice.kind:<7}  {notice.reason}  {what}  {notice.message}"
    print(line, flush=True)  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("events", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("--node", required=True, metavar="NAME", help="the node's name in the cluster")
    words = "the plugin's address, or a file with its /devices (%(default)s)"
    add("--plugin", default="http://127.0.0.1:9494", metavar="URL", help=words)
    add_options(parser)
    add_seconds(parser, "--interval", "10s", "between polls", "1s")
    words = "between two Events of a device with the same state"
    add_seconds(parser, "--quiet-period", "5m", words, "1s")
    add("--api", metavar="URL", help="the API server, if this does not run in a pod")
    add("--once", action="store_true", help="report what is unhealthy now, and exit")
    add("--dry-run", action="store_true", help="print Events, do not create them")
    return parser
