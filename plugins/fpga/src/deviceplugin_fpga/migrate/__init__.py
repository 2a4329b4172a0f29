"""What ``deviceplugin migrate`` knows of Intel's FPGA plugin, and of its admission webhook."""

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_fpga.migrate import names, plugin


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of Intel's FPGA plugin; None for anything else.

    Raises:
        ConfigError: A value is invalid.
    """
    names.note_without_plugin(workload)
    return plugin.migrate(workload)
