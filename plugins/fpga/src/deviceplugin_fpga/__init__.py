"""A Kubernetes device plugin for Intel FPGAs."""

from deviceplugin_fpga.command_line import main
from deviceplugin_fpga.plugin import FpgaPlugin
from deviceplugin_fpga.settings import FpgaSettings

__all__ = ["FpgaPlugin", "FpgaSettings", "main"]
