"""The command line of ``deviceplugin stub``."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.errors import ConfigError
from deviceplugin.proto.v1beta1 import HEALTHY, PLUGIN_DIR
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin.tools import _command_line
from deviceplugin_testing.simulator import StubError
from deviceplugin_testing.simulator._clock import PATIENCE
from deviceplugin_testing.simulator._stubs.plugin import StubPlugin
from deviceplugin_testing.tools._console import (
    Command,
    CommandError,
    Console,
    number,
    opened,
    serve,
    stopping,
)


class StubCommands:
    def __init__(self, plugin: StubPlugin) -> None:
        self._plugin = plugin
        most = f"{PATIENCE:g} s at most"
        self.table: Mapping[str, Command] = {
            "devices": Command(self._devices, "[ID[:HEALTH]...]", "send this list"),
            "fail": Command(self._fail, "METHOD CODE [TEXT...]", "fail calls of a method"),
            "heal": Command(plugin.failing.clear, "", "stop failing calls"),
            "hold": Command(plugin.hold, "METHOD", "make calls of a method wait"),
            "release": Command(plugin.release, "", "let all calls continue"),
            "end-stream": Command(plugin.end_streams, "", "return from ListAndWatch"),
            "register": Command(self.register, "", "register with the kubelet"),
            "stop": Command(plugin.stop, "", "stop serving and delete the socket"),
            "start": Command(plugin.start, "", "serve again, without registering"),
            "calls": Command(self._calls, "", "show the calls so far"),
            "wait": Command(self._wait, "METHOD [COUNT]", f"wait for calls of a method, {most}"),
        }

    def _devices(self, *devices: str) -> None:
        self._plugin.update(parse_devices(devices))

    def _fail(self, method: str, code: str, *text: str) -> None:
        try:
            status = grpc.StatusCode[code.upper()]
        except KeyError:
            known = ", ".join(each.name for each in grpc.StatusCode)
            raise CommandError(f"unknown code {code!r}; known are {known}") from None
        self._plugin.failing[method] = StubError(" ".join(text) or "told to fail", status)

    def register(self) -> str:
        """Register; raise ``CommandError`` if the kubelet refuses it."""
        try:
            self._plugin.register()
        except grpc.RpcError as error:
            raise CommandError(f"not registered: {rpc.status_text(error)}") from None
        return f"registered {self._plugin.resource}"

    def _calls(self) -> str:
        return "\n".join(self._plugin.calls) or "none"

    def _wait(self, method: str, count: str = "1") -> None:
        wanted = int(number(count))
        try:
            self._plugin.wait(lambda: self._plugin.calls.count(method) >= wanted, timeout=PATIENCE)
        except TimeoutError as error:
            raise CommandError(str(error)) from None


def parse_devices(words: tuple[str, ...]) -> dict[str, str]:
    """Return id to health of ``ID`` or ``ID:HEALTH`` words; without health it is healthy."""
    pairs = [word.rpartition(":") for word in words]
    return {id_ or health: health if id_ else HEALTHY for id_, _, health in pairs}


_DESCRIPTION: Final = """\
Run a device plugin that you control by commands, to test a kubelet, simulated or real.

It registers RESOURCE with the given devices. A device is an ID, or ID:HEALTH.
Commands are typed or read from a script; 'help' lists them. Nothing happens by itself: after a
restart of the kubelet, for example, it registers again only on the command 'register'."""

_EXAMPLES: Final = """\
examples:
  deviceplugin stub example.com/thing a b c:Unhealthy --dir /tmp/kubelet/device-plugins
  deviceplugin stub example.com/thing a --dir /tmp/kubelet/plugins_registry --watched

Exit status: 0 after a stop, 1 if a command failed or the kubelet refused it, 2 if the command line
is wrong."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin stub`` with the arguments ``argv`` and return its exit status.

    0 after a stop, 1 if a command of a script failed or the kubelet refused the plugin, 2 for a
    wrong command line.
    """
    return _command_line.run(_parser(), argv, _run, (OSError, RuntimeError, CommandError))


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("stub", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("resource", metavar="RESOURCE")
    parser.add_argument("devices", nargs="*", default=[], metavar="DEVICE")
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
    if not options.dir.is_dir():
        raise ConfigError(
            f"--dir {options.dir}: is not a directory; deviceplugin kubelet DIR makes one, "
            "DIR/device-plugins"
        )
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
