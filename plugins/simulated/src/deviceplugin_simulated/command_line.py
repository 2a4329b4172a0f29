"""The command ``simulated-device-plugin``."""

import sys
from typing import NoReturn

import deviceplugin as dp
from deviceplugin_simulated import ctl_command
from deviceplugin_simulated.plugin import SimulatedPlugin
from deviceplugin_simulated.settings import SimulatedSettings


def main() -> NoReturn:
    """Run ``simulated-device-plugin``, or its part ``ctl``."""
    if sys.argv[1:2] == ["ctl"]:
        raise SystemExit(ctl_command.run(sys.argv[2:]))
    dp.main(SimulatedPlugin, settings=SimulatedSettings)
