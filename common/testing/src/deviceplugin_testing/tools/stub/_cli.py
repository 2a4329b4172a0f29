"""The command line of ``deviceplugin stub``."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from deviceplugin.proto.v1beta1 import PLUGIN_DIR
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin.tools import _command_line
from deviceplugin_testing.simulator._stubs.plugin import StubPlugin
from deviceplugin_testing.tools._console import CommandError, Console, opened, serve, stopping
from deviceplugin_testing.tools.stub._commands import StubCommands, parse_devices

_DESCRIPTION: Final = """\
Run a device plugin that you control by commands, to test a kubelet, simulated or real.

It registers RESOURCE with the given devices. A device is an ID, or ID:HEALTH.
Commands are typed or read from a script; 'help' lists them. Nothing happens by itself: after a
restart of the kubelet, for example, it registers again only on the command 'register'."""

_EXAMPLES: Final = """\
examples:
  deviceplugin stub example.com/thing a b c:Unhealthy --dir /tmp/kubelet/device-plugins
  deviceplugin stub example.com/thing a --dir /tmp/kubelet/plugins_registry --watched
"""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin stub`` with the arguments ``argv`` and return its exit status.

    0 after a stop, 1 if a command of a script failed or the kubelet refused the plugin, 2 for a
    wrong command line.
    """
    return _command_line.run(_parser(), argv, _run, (OSError, CommandError))


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("stub", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("resource", metavar="RESOURCE")
    parser.add_argument("devices", nargs="*", metavar="DEVICE")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(PLUGIN_DIR),
        help="the kubelet's plugin directory, or its plugins_registry (default %(default)s)",
    )
    parser.add_argument("--name", default="stub.sock", help="name of the socket")
    parser.add_argument(
        "--watched", action="store_true", help="do not register, but let the kubelet find it"
    )
    parser.add_argument("--pre-start", action="store_true", help="require PreStartContainer")
    parser.add_argument("--prefer", action="store_true", help="offer GetPreferredAllocation")
    parser.add_argument(
        "--script", metavar="FILE", help="run the commands in FILE (- is stdin) and stop"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    plugin = StubPlugin(
        options.dir,
        options.resource,
        parse_devices(tuple(options.devices)),
        name=options.name,
        options=pb.DevicePluginOptions(
            pre_start_required=options.pre_start,
            get_preferred_allocation_available=options.prefer,
        ),
    )
    commands = StubCommands(plugin)
    console = Console(commands.table, sys.stdout)
    with ExitStack() as stack:
        stack.enter_context(stopping(console))
        script = opened(options.script, stack)
        plugin.start()
        stack.callback(plugin.stop)
        console.show(f"listening on {plugin.socket}")
        if not options.watched:
            console.show(commands.register())
        return serve(console, script)
