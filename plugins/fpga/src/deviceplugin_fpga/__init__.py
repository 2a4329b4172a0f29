"""A Kubernetes device plugin for Intel FPGAs."""

from deviceplugin_fpga._main import main

__all__ = ["main"]
