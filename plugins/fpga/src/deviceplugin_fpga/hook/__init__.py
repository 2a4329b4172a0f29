"""``fpga-hook``, which a container runtime calls to program the regions that a pod asks for.

It runs on the host, so it needs only Python 3.9 and its standard library. Of the plugin it imports
only ``drivers``, and of the framework only ``kit.sysfs``.
"""

from deviceplugin_fpga.hook.command_line import main

__all__ = ["main"]
