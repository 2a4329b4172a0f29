"""The command line of ``deviceplugin completion``."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import Final

from deviceplugin.tools import _command_line
from deviceplugin.tools.completion._script import SCRIPT

_DESCRIPTION: Final = """\
Print what a shell needs to complete commands, flags and their values: of deviceplugin, of the
plugins that are installed beside it, and of other PROGRAMs that call deviceplugin.main().

A shell asks a program for its --help, once for each command. Nothing is installed on a node."""

_EXAMPLES: Final = """\
examples:
  source <(deviceplugin completion bash)                  in ~/.bashrc, for bash 4.4 or newer
  source <(deviceplugin completion bash lamp-device-plugin)
  deviceplugin completion kubectl > ~/bin/kubectl_complete-deviceplugin
  chmod +x ~/bin/kubectl_complete-deviceplugin            for kubectl deviceplugin, in any shell

The file for kubectl has to be in PATH, under this name.

Exit status: 0, or 2 if the command line is wrong."""

_OWN: Final = ("deviceplugin", "kubectl-deviceplugin")
_PLUGINS: Final = "deviceplugin.plugins"
_BASH: Final = "complete -o default -F _deviceplugin"
_KUBECTL: Final = """\
COMP_WORDS=(kubectl-deviceplugin "$@") COMP_CWORD=$#
_deviceplugin
printf '%s\\n' "${COMPREPLY[@]}" :0
"""
"""How kubectl asks, and is answered: with what the last word may be, and with no restriction."""


def programs() -> list[str]:
    """Return our commands: those of the tools, and of the installed plugins."""
    return [*_OWN, *sorted({*_of_plugins()})]


def _of_plugins() -> Iterator[str]:
    for plugin in entry_points(group=_PLUGINS):
        if plugin.dist is not None:
            yield from (
                one.name for one in plugin.dist.entry_points.select(group="console_scripts")
            )


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _print)


def _print(options: argparse.Namespace) -> int:
    if options.shell == "bash":
        names = shlex.join([*programs(), *options.program])
        sys.stdout.write(f"{SCRIPT}\n{_BASH} -- {names}\n")
    else:
        sys.stdout.write(f"#!/usr/bin/env bash\n{SCRIPT}\n{_KUBECTL}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("completion", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("shell", choices=["bash", "kubectl"], help="who completes")
    words = "another program, for bash"
    parser.add_argument("program", metavar="PROGRAM", nargs="*", default=[], help=words)
    return parser
