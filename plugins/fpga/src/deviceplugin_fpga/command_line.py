"""The command ``fpga-device-plugin``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import Hosted
from deviceplugin_fpga import install
from deviceplugin_fpga.plugin import FpgaPlugin
from deviceplugin_fpga.resource_names import NAMESPACE
from deviceplugin_fpga.settings import FpgaSettings

_USAGE: Final = "usage: fpga-device-plugin install-hook /PATH/OF/THE/HOOK\n"
_PURPOSE: Final = """\
Write the hook that programs FPGAs when a container starts. It is one file, which the container
runtime calls. The host needs only /bin/sh, and Python 3.9 or newer in /usr/bin.
"""


def main() -> NoReturn:
    """Run ``fpga-device-plugin``, or one of its commands."""
    dp.main(
        FpgaPlugin,
        settings=FpgaSettings,
        commands={"install-hook": install_hook, "name": name, "bitstream": bitstream},
        description="Offer Intel FPGAs to pods: functions that are programmed already, or regions "
        "that are programmed when a container starts.",
    )


def hosted() -> Hosted[FpgaSettings]:
    """Return the plugin for ``device-plugins``."""
    owned = {
        "aliases": "it names a file: deployments/components/fpga-aliases",
        "node-annotation": "it needs a token: deployments/components/node-annotation",
        "sysfs-dir": "every container has its own /sys",
        "hook": "an init container of the manifest writes it",
    }
    return Hosted(FpgaPlugin, FpgaSettings, lambda _: [f"{NAMESPACE}/*"], owned)


# Imported late: a plugin on a node never needs these.


def name(arguments: Sequence[str]) -> int:
    """Print what a pod must request to get a function."""
    from deviceplugin_fpga import commands

    return commands.name(arguments)


def bitstream(arguments: Sequence[str]) -> int:
    """Print the contents of a bitstream, and which cards of this machine it fits."""
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
