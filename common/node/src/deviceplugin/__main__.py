"""The command ``deviceplugin``: the framework's own tools, one sub-command each."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast

from deviceplugin._app.signals import ending_at_once
from deviceplugin._config.suggestions import suggestion

_USAGE: Final = 2
_VERSION: Final = "--version"
_KUBECTL: Final = "kubectl-deviceplugin"
"""The name of the program by which it is a plugin of kubectl, whose first command is ``fleet``."""


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command, and where its ``main(argv) -> int`` is."""

    module: str
    summary: str


COMMANDS: Final[Mapping[str, Command]] = {
    "new": Command("deviceplugin_testing.tools.new._cli", "create a working plugin to start from"),
    "kubelet": Command(
        "deviceplugin_testing.tools.kubelet._cli", "run a simulated kubelet to try plugins on"
    ),
    "stub": Command(
        "deviceplugin_testing.tools.stub._cli", "run a plugin that you control, to test a node"
    ),
    "conformance": Command(
        "deviceplugin_testing.tools.conformance._cli",
        "check any device plugin against what a kubelet expects",
    ),
    "bench": Command("deviceplugin_testing.tools.bench._cli", "measure any device plugin from outside"),
    "doctor": Command(
        "deviceplugin.tools.doctor._cli", "check a node and report what is wrong with it"
    ),
    "devices": Command(
        "deviceplugin.tools.devices._cli", "list a node's devices and the pods that hold them"
    ),
    "drain": Command(
        "deviceplugin.tools.drain._cli", "wait until nobody holds devices through a protocol"
    ),
    "fleet": Command("deviceplugin_cli.fleet._cli", "list the devices of all nodes of a cluster"),
    "events": Command(
        "deviceplugin.tools.events._cli", "report a node's unhealthy devices as Events"
    ),
    "evict": Command(
        "deviceplugin.tools.evict._cli", "evict pods whose device has been unhealthy for too long"
    ),
    "migrate": Command(
        "deviceplugin_cli.migrate._cli", "turn the manifest of another plugin into one of ours"
    ),
    "record": Command(
        "deviceplugin.tools.record._cli", "print what plugins read of this machine, for an issue"
    ),
    "startup-taint": Command(
        "deviceplugin.tools.startup_taint._cli",
        "remove a node's taint once its devices are registered",
    ),
}
"""A module is imported when its command is called, so that no command pays for the others."""

_HELP: Final = """\
usage: deviceplugin COMMAND [options]

Tools for Kubernetes device plugins. Developing a plugin needs no cluster, root or hardware.
doctor and devices inspect a node, and change nothing on it.

commands:
{commands}

  deviceplugin COMMAND --help   describe a command
  deviceplugin --version        print the version

Your own plugin is a separate program, which calls deviceplugin.main(YourPlugin).
A first session, in two terminals:

  deviceplugin kubelet /tmp/kubelet
  gopher-device-plugin --plugin-dir /tmp/kubelet/device-plugins --directory $PWD
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sub-command that ``argv`` (by default the process's arguments) names.

    Returns:
        The exit status: the sub-command's, or 2 for a wrong command line, and for a command that is
        not installed, as some are not in images of plugins.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if Path(sys.argv[0]).name == _KUBECTL and not {*words[:1]} & {*COMMANDS, _VERSION}:
        words = ["fleet", *words]
    if not words or words[0] in {"-h", "--help", "help"}:
        (sys.stdout if words else sys.stderr).write(_help())
        return 0 if words else _USAGE
    name, *rest = words
    if name == _VERSION:
        sys.stdout.write(f"deviceplugin {version('deviceplugin')}\n")
        return 0
    if name not in COMMANDS:
        sys.stderr.write(f"deviceplugin: {_unknown(name)}\n")
        return _USAGE
    try:
        with ending_at_once():
            found = import_module(COMMANDS[name].module)
    except ModuleNotFoundError as error:
        if not (reason := _missing(COMMANDS[name], error.name or "")):
            raise
        sys.stderr.write(f"deviceplugin: {name} {reason}\n")
        return _USAGE
    run = cast("Callable[[Sequence[str]], int]", found.main)
    return run(rest)


def _missing(command: Command, module: str) -> str:
    """Return why a command cannot run without ``module``; empty if it should have it."""
    if f"{command.module}.".startswith(f"{module}."):
        return "is not in this image: pip install deviceplugin"
    if module == "urllib3":
        return "needs urllib3: pip install 'deviceplugin[cluster]'"
    return ""


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}   {command.summary}" for name, command in COMMANDS.items()]
    return _HELP.format(commands="\n".join(lines))


def _unknown(name: str) -> str:
    return f"unknown command {name!r}: {suggestion(name, COMMANDS)}"


if __name__ == "__main__":
    sys.exit(main())
