"""The command ``simulated-device-plugin``."""

import sys
from typing import NoReturn

import deviceplugin as dp
from deviceplugin_simulated import _ctl
from deviceplugin_simulated._plugin import SimulatedPlugin
from deviceplugin_simulated._settings import SimulatedSettings


def main() -> NoReturn:
    """Run ``simulated-device-plugin``, or its part ``ctl``."""
    if sys.argv[1:2] == ["ctl"]:
        raise SystemExit(_ctl.run(sys.argv[2:]))
    dp.main(SimulatedPlugin, settings=SimulatedSettings)
