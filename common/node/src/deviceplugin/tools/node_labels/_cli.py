"""The command line of ``deviceplugin node-labels``."""

import argparse
import logging
import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from deviceplugin._app.exit_status import FAILED
from deviceplugin._app.signals import set_when_stopped
from deviceplugin.apiserver import ApiServer, ApiServerError, UnavailableError
from deviceplugin.kit import files
from deviceplugin.kit.backoff import Backoff
from deviceplugin.kit.log import Problems, configure
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import add_seconds
from deviceplugin.tools._plugin_pods import advised, api_server

log = logging.getLogger(__name__)

_NAME: Final = "deviceplugin-node-labels"
_ADVICE: Final = "deployments/components/node-labels has the right to get nodes"
_SPREAD: Final = (0.9, 1.1)
"""By how much an interval differs, so that nodes do not ask all at once."""

_DESCRIPTION: Final = """\
Keep the labels of this node in a file, as the downward API writes those of a pod. A plugin beside
it chooses its configuration by them: its setting node-labels-file names the file. While the API
server does not answer, the file stays as it is."""

_EXAMPLES: Final = """\
examples:
  deviceplugin node-labels --node worker-3 --file /run/node-labels/labels
  deviceplugin node-labels --node worker-3 --file labels --once --api http://127.0.0.1:8001

In a pod, it finds the API server's address, the token and the certificate by itself. Its service
account needs the right to get nodes.

Exit status: 0 after a stop, or with --once if the file is current; 1 with --once if not; 2 if the
command line is wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _keep)


def _keep(options: argparse.Namespace) -> int:
    api = api_server(options, _NAME)
    configure("info", "auto")
    stop = threading.Event() if options.once else set_when_stopped()
    problems, backoff = Problems(log), Backoff(1.0, max(1.0, options.interval))
    while True:
        problem, wait = "", options.interval * random.uniform(*_SPREAD)  # noqa: S311
        try:
            if files.write(options.file, _labels(api, options.node), durable=False):
                log.info("node labels written", extra={"file": str(options.file)})
        except ApiServerError as error:
            problem, wait = advised(error, _ADVICE), error.after + backoff.next_wait()
        except OSError as error:
            problem, wait = str(error), backoff.next_wait()
        if problem:
            problems.say("labels", "node labels not written", error=problem)
        else:
            problems.over("labels")
            backoff.reset()
        if options.once or stop.wait(wait):
            return FAILED if options.once and problem else 0


def _labels(api: ApiServer, node: str) -> str:
    # From the server's cache: that may be a moment old, and costs it the least.
    answer = api.get(f"/api/v1/nodes/{node}", {"resourceVersion": "0"})
    metadata = answer.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("name") != node:
        raise UnavailableError(f"node {node!r}: the answer is not this node")
    labels = metadata.get("labels")
    found = labels if isinstance(labels, Mapping) else {}
    return "".join(f'{key}="{value}"\n' for key, value in sorted(found.items()))


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("node-labels", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("--node", required=True, metavar="NAME", help="the node's name in the cluster")
    add("--file", required=True, type=Path, metavar="PATH", help="the file")
    add_seconds(parser, "--interval", "30s", "between questions", "1s", "1h")
    add("--api", metavar="URL", help="the API server, if this does not run in a pod")
    add("--once", action="store_true", help="write the file once, and exit")
    return parser
