"""The command ``simulated-device-plugin``."""

from typing import NoReturn

import deviceplugin as dp
from deviceplugin_simulated._plugin import SimulatedPlugin
from deviceplugin_simulated._settings import SimulatedSettings


def main() -> NoReturn:
    """Run ``simulated-device-plugin``."""
    dp.main(SimulatedPlugin, settings=SimulatedSettings)
