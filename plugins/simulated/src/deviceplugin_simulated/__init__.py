"""Advertise devices that exist in the configuration only, and let them fail as real ones do."""

from deviceplugin_simulated.command_line import main
from deviceplugin_simulated.plugin import SimulatedParameters, SimulatedPlugin
from deviceplugin_simulated.settings import SimulatedSettings

__all__ = ["SimulatedParameters", "SimulatedPlugin", "SimulatedSettings", "main"]
