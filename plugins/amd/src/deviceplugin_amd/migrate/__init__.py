"""What ``deviceplugin migrate`` knows of AMD's plugin: flags, Helm values, and its operator."""

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_amd.migrate import chart, operator, plugin


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of AMD's plugin; None for anything else.

    Raises:
        ConfigError: A value is invalid, or there is no plugin for containers.
    """
    found = (peer.migrate(workload) for peer in (plugin, chart, operator))
    return next((one for one in found if one is not None), None)
