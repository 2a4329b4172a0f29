"""The command line of ``deviceplugin startup-taint``."""

import argparse
import logging
import re
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deviceplugin._telemetry import log as _log
from deviceplugin.apiserver import ApiServer
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin.tools.startup_taint._keeper import Keeper
from deviceplugin.tools.startup_taint._node import Node
from deviceplugin.tools.startup_taint._readiness import readiness

log = logging.getLogger(__name__)

_NAME: Final = "deviceplugin-startup-taint"
_KEY: Final = re.compile(
    r"(?P<domain>[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)/[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The machine's, in every container: the kubelet reports it as the node's ``bootID``."""
_AUTOSCALER: Final = "startup-taint.cluster-autoscaler.kubernetes.io"

_DESCRIPTION: Final = """\
Remove a taint of this node, which keeps pods off it, once the devices of a plugin are registered
with the kubelet and on the node. It runs beside a plugin, and asks it for its /readyz and /devices.
The taint is set by whoever makes the node; other taints are left alone."""

_EXAMPLES: Final = """\
examples:
  deviceplugin startup-taint --node worker-3 --taint startup.deviceplugin.dev/lamp-device-plugin
  deviceplugin startup-taint --node n --taint KEY --after-reboot      set it again at each boot
  deviceplugin startup-taint --node n --taint KEY --empty-after 30m   drivers come late here

The kubelet sets it on a new node: --register-with-taints=KEY=:NoSchedule

Exit status: 0 if told to stop; 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin startup-taint`` with the arguments ``argv`` and return its exit status.

    0 when told to stop; 2 for a wrong command line.
    """
    return _command_line.run(_parser(), argv, _run)


def _run(options: argparse.Namespace) -> int:
    api = ApiServer(options.api, name=_NAME) if options.api else _own_cluster()
    _log.configure("info", "auto")
    keeper = Keeper(
        Node(api, options.node, options.taint),
        options.taint,
        empty_after=options.empty_after,
        boot=_boot() if options.after_reboot else "",
    )
    log.info("watching for the startup taint", extra={"taint": options.taint})
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        idle = keeper.act(readiness(options.plugin), time.monotonic())
        stop.wait(max(idle, options.interval))
    return 0


def _own_cluster() -> ApiServer:
    try:
        return ApiServer.of_pod(name=_NAME)
    except ConfigError as error:
        raise ConfigError(f"{error}; give --api URL") from None


def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--after-reboot: {_BOOT_ID} cannot be read: {error}") from error


def _key(text: str) -> str:
    """Return the key of a taint that may be ours."""
    found = _KEY.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not DOMAIN/NAME, such as startup.deviceplugin.dev/lamp-device-plugin"
        )
    domain = found["domain"]
    if domain != _AUTOSCALER and re.search(r"(^|\.)(kubernetes|k8s)\.io$", domain):
        raise argparse.ArgumentTypeError(f"{text!r} belongs to Kubernetes")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("startup-taint", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("--node", required=True, metavar="NAME", help="the node's name in the cluster")
    add("--taint", required=True, type=_key, metavar="KEY", help="the key of the taint")
    add(
        "--after-reboot",
        action="store_true",
        help="set it again when the node has rebooted since it was removed; needs an annotation",
    )
    add(
        "--empty-after",
        type=_command_line.seconds("1s", "24h"),
        default="2m",
        metavar="TIME",
        help="remove it also from a node on which no device has been found for so long (2m)",
    )
    add(
        "--plugin",
        default="http://127.0.0.1:9494",
        metavar="URL",
        help="where the plugin serves (%(default)s)",
    )
    add(
        "--interval",
        type=_command_line.seconds("1s", "1m"),
        default="2s",
        metavar="TIME",
        help="between questions (2s)",
    )
    add("--api", metavar="URL", help="the API server, where this is not a pod")
    return parser
