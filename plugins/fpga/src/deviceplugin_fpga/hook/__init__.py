"""``fpga-hook``, which a container runtime calls to program the regions that a pod asks for.

Standard library only, Python 3.9, and no part of the plugin but ``drivers``, and of the framework
but ``kit.sysfs``: it runs on the host.
"""

from deviceplugin_fpga.hook.command_line import main

__all__ = ["main"]
