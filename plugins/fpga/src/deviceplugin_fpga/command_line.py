"""The command ``fpga-device-plugin``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import deviceplugin as dp
from deviceplugin_fpga import install
from deviceplugin_fpga.plugin import FpgaPlugin
from deviceplugin_fpga.settings import FpgaSettings

_USAGE: Final = "usage: fpga-device-plugin install-hook /PATH/OF/THE/HOOK\n"
_PURPOSE: Final = """\
Writes the hook that programs FPGAs when a container starts: one file, which a container runtime
calls, and which needs nothing on the host but /bin/sh, and Python 3.9 or newer in /usr/bin.
"""


def main() -> NoReturn:
    """Run ``fpga-device-plugin``, or one of its parts."""
    dp.main(
        FpgaPlugin,
        settings=FpgaSettings,
        commands={"install-hook": install_hook, "name": name, "bitstream": bitstream},
        description="Offer Intel FPGAs to pods: functions that are programmed already, or regions "
        "that are programmed when a container starts.",
    )


# What a plugin that runs on a node never needs is imported late.


def name(arguments: Sequence[str]) -> int:
    """Print what a pod has to ask for to get a function."""
    from deviceplugin_fpga import commands

    return commands.name(arguments)


def bitstream(arguments: Sequence[str]) -> int:
    """Print what is in a bitstream, and which cards here it fits."""
    from deviceplugin_fpga import commands

    return commands.bitstream(arguments)


def install_hook(arguments: Sequence[str]) -> int:
    """Write the hook that programs FPGAs when a container starts."""
    if {"-h", "--help"} & {*arguments}:
        sys.stdout.write(f"{_USAGE}\n{_PURPOSE}")
        return 0
    path = Path(*arguments[:1])
    if len(arguments) != 1 or not path.is_absolute() or not path.name:
        sys.stderr.write(_USAGE)
        return 2
    try:
        install.install(path)
    except OSError as error:
        sys.stderr.write(f"fpga-device-plugin: {error.filename}: {error.strerror}\n")
        return 1
    return 0
