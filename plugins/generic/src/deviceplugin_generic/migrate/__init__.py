"""What ``deviceplugin migrate`` knows of the generic plugin's peers, a module for each."""

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_generic.migrate import akri, others, smarter, squat


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of a peer of the generic plugin; None for anything else."""
    others.note(workload)
    found = (peer.migrate(workload) for peer in (squat, smarter, akri))
    return next((one for one in found if one is not None), None)
