"""``fpga-hook``, which a container runtime calls to program the regions that a pod asks for.

Standard library only, Python 3.9, and no part of the plugin but ``_drivers`` and ``_sysfs``: it
runs on the host.
"""

from deviceplugin_fpga.hook._main import main

__all__ = ["main"]
