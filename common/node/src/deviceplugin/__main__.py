"""The command ``deviceplugin``: the framework's own tools, one sub-command each."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Final, cast

from deviceplugin._app.signals import ending_at_once
from deviceplugin._config.documents.faults import bounded, suggestion
from deviceplugin._platform import late_modules

_USAGE: Final = 2
_VERSION: Final = "--version"
_KUBECTL: Final = "kubectl-deviceplugin"
"""The name of the program by which it is a plugin of kubectl, whose first command is ``fleet``."""
_HELPS: Final = ("-h", "--help", "help")
_OWN: Final = (*_HELPS, _VERSION)
"""Words that are no options of a command."""
GROUP: Final = "deviceplugin.commands"
"""The entry points of packages whose ``main(argv) -> int`` are commands."""
_EXTRAS: Final = {"urllib3": "urllib3", "yaml": "pyyaml", "pyudev": "pyudev"}
"""Modules of our extras, and the packages that have them."""
_NODE: Final = "deviceplugin"
_TESTING: Final = "deviceplugin-testing"
_CLI: Final = "deviceplugin-cli"
_OF_KUBECTL: Final = {
    "doctor": "cluster-doctor",
    "hold": "cluster-hold",
    "release": "cluster-release",
}
"""Commands that by the name of kubectl's plugin are a cluster's, unless --pod is given."""


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command, and the package that has it."""

    package: str
    summary: str

    @property
    def source(self) -> str:
        """Where a checkout has the package: names on the index may be anybody's."""
        return f"./common/{self.package.removeprefix('deviceplugin-')}"


COMMANDS: Final[Mapping[str, Command]] = {
    "new": Command(_TESTING, "create a working plugin to start from"),
    "kubelet": Command(_TESTING, "run a simulated kubelet to try plugins on"),
    "stub": Command(_TESTING, "run a plugin that you control, to test a node"),
    "conformance": Command(_TESTING, "check any device plugin against what a kubelet expects"),
    "bench": Command(_TESTING, "measure any device plugin from outside"),
    "accept": Command(_TESTING, "try a plugin's devices on a machine that has them"),
    "doctor": Command(_NODE, "check a node and report what is wrong with it"),
    "devices": Command(_NODE, "list a node's devices and the pods that hold them"),
    "drain": Command(_NODE, "wait until nobody holds devices through a protocol"),
    "fleet": Command(_CLI, "list the devices of all nodes of a cluster"),
    "node-template": Command(_CLI, "print what an autoscaler must know to scale from zero"),
    "cluster-doctor": Command(_CLI, "find what is wrong in a cluster: kubectl deviceplugin doctor"),
    "cluster-hold": Command(_CLI, "hold a node's device: kubectl deviceplugin hold"),
    "cluster-release": Command(_CLI, "release a node's device: kubectl deviceplugin release"),
    "sysdump": Command(_CLI, "write what a report about a cluster needs into one archive"),
    "events": Command(_NODE, "report a node's unhealthy devices as Events"),
    "hold": Command(_NODE, "keep pods off a device, and have its plugin let go of it"),
    "release": Command(_NODE, "give a held device to pods again"),
    "evict": Command(_NODE, "evict pods whose device has been unhealthy for too long"),
    "migrate": Command(_CLI, "turn the manifest of another plugin into one of ours"),
    "node-labels": Command(_NODE, "keep a node's labels in a file, for a plugin"),
    "record": Command(_NODE, "print what plugins read of this machine, for an issue"),
    "startup-taint": Command(_NODE, "remove a node's taint once its devices are registered"),
    "completion": Command(_NODE, "print what a shell needs to complete commands"),
}
"""The commands of our packages, whether they are installed or not, in the order of ``--help``."""

_HELP: Final = """\
usage: deviceplugin COMMAND [options]

Tools for Kubernetes device plugins. Developing a plugin needs no cluster, root or hardware.
doctor and devices inspect a node, and change nothing on it.

commands:
{commands}

  deviceplugin COMMAND --help   describe a command
  deviceplugin --version        print the version
  kubectl deviceplugin          the same for kubectl; without COMMAND, fleet

Your own plugin is a separate program, which calls deviceplugin.main(YourPlugin).
{session}"""
_SESSION: Final = """\
A first session, in two terminals:

  deviceplugin kubelet /tmp/kubelet
  deviceplugin stub example.com/lamp a b --dir /tmp/kubelet/device-plugins
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sub-command that ``argv`` (by default the process's arguments) names.

    Returns:
        The exit status: the sub-command's, or 2 for a wrong command line, and for a command that is
        not installed, as some are not in images of plugins.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    first = words[0] if words else "-"
    if Path(sys.argv[0]).name == _KUBECTL and first[0:1] == "-" and first not in _OWN:
        words = ["fleet", *words]
    if not words or words[0] in _HELPS:
        (sys.stdout if words else sys.stderr).write(_help())
        return 0 if words else _USAGE
    name, *rest = words
    if name == _VERSION:
        sys.stdout.write(f"deviceplugin {version('deviceplugin')}\n")
        return 0
    if Path(sys.argv[0]).name == _KUBECTL and not any(word.startswith("--pod") for word in rest):
        name = _OF_KUBECTL.get(name, name)
    if not (entry := _installed().get(name)):
        sys.stderr.write(f"deviceplugin: {_absent(name)}\n")
        return _USAGE
    late_modules.install()
    try:
        with ending_at_once():
            run = cast("Callable[[Sequence[str]], int]", entry.load())
    except ModuleNotFoundError as error:
        if not (package := _EXTRAS.get(error.name or "")):
            raise
        sys.stderr.write(f"deviceplugin: {name} needs {error.name}: pip install {package}\n")
        return _USAGE
    return run(rest)


def _installed() -> dict[str, EntryPoint]:
    """Return the commands of what is installed, ours first. Nothing is imported."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    return {name: found[name] for name in [*COMMANDS, *sorted(found)] if name in found}


def _help() -> str:
    installed = _installed()
    width = max(map(len, installed), default=0)
    lines = [f"  {name:{width}}   {_summary(name, entry)}" for name, entry in installed.items()]
    absent: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        if name not in installed:
            absent.setdefault(command.package, []).append(name)
    lines += [f"\nof {package}, not installed: {', '.join(absent[package])}" for package in absent]
    session = _SESSION if "stub" in installed else ""
    return _HELP.format(commands="\n".join(lines), session=session)


def _summary(name: str, entry: EntryPoint) -> str:
    """Return what a command does; of another's, which package has it."""
    if name in COMMANDS:
        return COMMANDS[name].summary
    return f"of the package {entry.dist.name}" if entry.dist else ""


def _absent(name: str) -> str:
    if name in COMMANDS:
        return f"{name} is not installed: in a checkout, pip install {COMMANDS[name].source}"
    return f"unknown command {bounded(repr(name))}: {suggestion(name, [*_installed()])}"


if __name__ == "__main__":
    sys.exit(main())
