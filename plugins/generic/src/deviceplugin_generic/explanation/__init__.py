"""``generic-device-plugin explain``: entries of a configuration for this machine's devices."""

from deviceplugin_generic.explanation.command_line import main

__all__ = ["main"]
