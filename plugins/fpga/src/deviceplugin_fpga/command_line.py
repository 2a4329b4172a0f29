"""The command ``fpga-device-plugin``."""

import sys
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
    part, arguments = "".join(sys.argv[1:2]), sys.argv[2:]
    if part == "install-hook":
        _install_hook(arguments)
    if part in {"name", "bitstream"}:
        # Late: what a plugin that runs on a node never needs.
        from deviceplugin_fpga import commands

        run = commands.name if part == "name" else commands.bitstream
        raise SystemExit(run(arguments))
    dp.main(FpgaPlugin, settings=FpgaSettings)


def _install_hook(arguments: list[str]) -> NoReturn:
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(f"{_USAGE}\n{_PURPOSE}")
        raise SystemExit(0)
    path = Path(*arguments[:1])
    if len(arguments) != 1 or not path.is_absolute() or not path.name:
        sys.stderr.write(_USAGE)
        raise SystemExit(2)
    try:
        install.install(path)
    except OSError as error:
        raise SystemExit(f"fpga-device-plugin: {error.filename}: {error.strerror}") from error
    raise SystemExit(0)
