"""A Kubernetes device plugin for Intel FPGAs."""

from deviceplugin_fpga._main import main
from deviceplugin_fpga._plugin import FpgaPlugin
from deviceplugin_fpga._settings import FpgaSettings

__all__ = ["FpgaPlugin", "FpgaSettings", "main"]
