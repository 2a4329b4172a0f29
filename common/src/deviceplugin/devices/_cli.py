"""The command line of ``deviceplugin devices``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deviceplugin import _settings
from deviceplugin._answer import NoAnswerError
from deviceplugin._settings import Settings
from deviceplugin.devices import _report
from deviceplugin.devices._inventory import Inventory
from deviceplugin.devices._sources import ask_kubelet, ask_plugin
from deviceplugin.errors import ConfigError

_FAILED: Final = 1
_USAGE: Final = 2
_PROGRAM: Final = "deviceplugin devices"
_LONGEST: Final = 60.0
_SETTING: Final = "pod-resources-socket"

_DESCRIPTION: Final = """\
List the devices of this node and which container has which, as the kubelet knows it; and with
--plugin also health and reasons, as the plugin knows them. Needs the kubelet's pod resources
socket, and no access to the cluster.

The kubelet answers by first taking back the devices of pods that have ended, as it also does
before it gives devices to a new pod. Do not run it in a loop of less than some seconds."""

_EXAMPLES: Final = """\
examples:
  deviceplugin devices
  deviceplugin devices --plugin http://127.0.0.1:9494 --json

Exit status: 0 if all who were asked have answered, 1 if not, 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin devices`` with the arguments ``argv`` and return its exit status.

    0 if all who were asked have answered, 1 if not, 2 for a wrong command line.
    """
    try:
        options = _parser().parse_args(argv)
    except SystemExit as done:  # --help, or a usage error that argparse has told
        return int(done.code or 0)
    try:
        socket = _socket(options)
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"{_PROGRAM}: {line}", file=sys.stderr)  # noqa: T201
        return _USAGE
    inventory = Inventory()
    problems = _ask(inventory, socket, options)
    for problem in problems:
        print(f"{_PROGRAM}: {problem}", file=sys.stderr)  # noqa: T201
    form = _report.to_json if options.json else _report.table
    sys.stdout.write(form(inventory))
    return _FAILED if problems else 0


def _socket(options: argparse.Namespace) -> Path:
    if not 0 < options.timeout <= _LONGEST:
        raise ConfigError(f"--timeout {options.timeout:g} is not above 0 and at most {_LONGEST:g}")
    given = {_SETTING: options.socket} if options.socket else {}
    return _settings.load(Settings, flags=given).pod_resources_socket


def _ask(inventory: Inventory, socket: Path, options: argparse.Namespace) -> list[str]:
    problems = []
    for url in options.plugin:
        try:
            ask_plugin(inventory, url, options.timeout)
        except NoAnswerError as error:
            problems.append(str(error))
    try:
        ask_kubelet(inventory, socket, options.timeout, told=bool(options.plugin))
    except NoAnswerError as error:
        inventory.unknown.append("which devices pods have: the kubelet does not answer")
        problems.append(str(error))
    return problems


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print JSON")
    add(
        "--plugin",
        action="append",
        default=[],
        metavar="URL",
        help="also ask the plugin at URL; may be given several times",
    )
    add(
        f"--{_SETTING}",
        dest="socket",
        metavar="PATH",
        help="the kubelet's socket; also the environment variable DP_POD_RESOURCES_SOCKET",
    )
    add(
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long each of them has to answer (5)",
    )
    return parser
