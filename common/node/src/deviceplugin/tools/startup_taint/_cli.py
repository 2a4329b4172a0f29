"""The command line of ``deviceplugin startup-taint``."""

import argparse
import logging
import re
import time
from collections.abc import Sequence
from typing import Final

from deviceplugin.kit.log import configure
from deviceplugin.tools import _command_line, _plugin_pods
from deviceplugin.tools._command_line import add_seconds
from deviceplugin.tools._plugin_pods import Visit, keep_visiting
from deviceplugin.tools.startup_taint._keeper import Keeper, TaintedNode, readiness

log = logging.getLogger(__name__)

_NAME: Final = "deviceplugin-startup-taint"
_KEY: Final = re.compile(
    r"(?P<domain>[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)/[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_AUTOSCALER: Final = "startup-taint.cluster-autoscaler.kubernetes.io"

_DESCRIPTION: Final = """\
Remove a taint of nodes, which keeps pods off them, once the devices of a plugin are registered with
the kubelet and on the node. It asks the plugin of each node for its /readyz and /devices. The taint
is set by whoever makes the node; other taints are left alone."""

_EXAMPLES: Final = """\
examples:
  deviceplugin startup-taint --taint startup.deviceplugin.dev/lamp-device-plugin \\
    --namespace lamp-device-plugin --selector app.kubernetes.io/name=lamp-device-plugin
  deviceplugin startup-taint --node worker-3 --taint startup.deviceplugin.dev/lamp-device-plugin
  deviceplugin startup-taint --node n --taint KEY --after-reboot      set it again at each boot
  deviceplugin startup-taint --node n --taint KEY --empty-after 30m   drivers come late here

The kubelet sets it on a new node: --register-with-taints=KEY=:NoSchedule

Exit status: 0 if told to stop; 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _run)


def _run(options: argparse.Namespace) -> int:
    _plugin_pods.check(options)
    api = _plugin_pods.api_server(options, _NAME)
    configure("info", "auto")

    def make(name: str) -> Visit:
        node = TaintedNode(api, name, options.taint)
        keeper = Keeper(node, empty_after=options.empty_after, after_reboot=options.after_reboot)
        return lambda plugin: keeper.act(readiness(plugin), time.monotonic())

    log.info("watching for the startup taint", extra={"taint": options.taint})
    with _plugin_pods.plugins(options, api) as plugins:
        keep_visiting(make, plugins, options.interval)
    return 0


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
    _plugin_pods.add_options(parser)
    add("--taint", required=True, type=_key, metavar="KEY", help="the key of the taint")
    words = "set it again when the node has rebooted since it was removed; needs an annotation"
    add("--after-reboot", action="store_true", help=words)
    words = "remove it also from a node on which no device has been found for so long"
    add_seconds(parser, "--empty-after", "2m", words, "1s", "24h")
    add_seconds(parser, "--interval", "2s", "between questions", "1s", "1m")
    return parser
