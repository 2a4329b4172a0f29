"""The command ``fpga-device-plugin``."""

import sys
from pathlib import Path
from typing import NoReturn

import deviceplugin as dp
from deviceplugin_fpga import _install
from deviceplugin_fpga._plugin import FpgaPlugin
from deviceplugin_fpga._settings import FpgaSettings


def main() -> NoReturn:
    """Run ``fpga-device-plugin``, or its part ``install-hook``."""
    if sys.argv[1:2] == ["install-hook"]:
        _install_hook(sys.argv[2:])
    dp.main(FpgaPlugin, settings=FpgaSettings)


def _install_hook(arguments: list[str]) -> NoReturn:
    if len(arguments) != 1 or not arguments[0].startswith("/"):
        sys.stderr.write("usage: fpga-device-plugin install-hook /PATH/OF/THE/HOOK\n")
        raise SystemExit(2)
    try:
        _install.install(Path(arguments[0]))
    except OSError as error:
        raise SystemExit(f"fpga-device-plugin: {error.filename}: {error.strerror}") from error
    raise SystemExit(0)
