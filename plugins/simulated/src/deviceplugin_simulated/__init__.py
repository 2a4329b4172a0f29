"""Advertise devices that exist in the configuration only, and let them fail as real ones do."""

from deviceplugin_simulated._main import main
from deviceplugin_simulated._plugin import SimulatedPlugin
from deviceplugin_simulated._settings import SimulatedSettings

__all__ = ["SimulatedPlugin", "SimulatedSettings", "main"]
