"""Words for tests of the FPGA plugin."""

from collections.abc import Callable

from deviceplugin_fpga import FpgaPlugin

Make = Callable[..., FpgaPlugin]
