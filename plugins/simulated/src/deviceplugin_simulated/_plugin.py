"""Advertise devices that exist in the configuration only, and let them fail as real ones do."""

from collections.abc import Iterable

from typing_extensions import override

import deviceplugin as dp
from deviceplugin_simulated._classic import classic_pattern
from deviceplugin_simulated._settings import SimulatedSettings


class SimulatedPlugin(dp.Plugin):
    """Devices by configuration.

    Raises:
        ConfigError: The settings describe no devices.
    """

    def __init__(self, settings: SimulatedSettings | None = None) -> None:
        settings = settings or SimulatedSettings()
        self.resource = settings.resource
        self.socket_name = settings.plugin_name
        self._devices = list(classic_pattern(settings).devices())

    @override
    def discover(self) -> Iterable[dp.Device]:
        return self._devices
